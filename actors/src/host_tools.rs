//! Host tools as a source: what platforms registered over the API, kept on the shelf. Capture tools are registered likewise.
//!
//! A registration is written and flushed before it counts. Readers never wait for the shelf.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use playhouse_mcp::{Vault, VaultFile};
use playhouse_protocol::consent::Risk;
use playhouse_store::{Shelf, StoreError};
use playhouse_tools::capture::{self, CaptureError, CaptureTool};
use playhouse_tools::host_tool::{HostTool, HostToolError, LARGEST_SCHEMA};
use playhouse_tools::web::Door;
use playhouse_tools::{Tool, ToolScope, ToolSource};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;
use tokio::sync::watch;

mod webhook;

pub use webhook::NewWebhook;
use webhook::Webhook;

/// The most host tools of a tenant.
pub const MOST_HOST_TOOLS: usize = 64;
/// All keys of the shelf that hold host tools begin with this.
const PREFIX: &str = "host-tools/";
/// In what form they are stored. Capture tools have a later one, since older engines would wait for results of their calls.
const VERSION: u32 = 1;
const CAPTURE_VERSION: u32 = 2;

/// A tool that a platform registers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostToolSpec {
    /// Its name.
    pub name: String,
    /// What a model is told of it.
    pub description: String,
    /// The JSON Schema of its arguments.
    pub schema: Value,
    /// How dangerous it is without a rule about it.
    pub risk: Risk,
    /// Where its calls are sent, beside the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<String>,
    /// Whether nobody carries it out: it is a capture tool, which keeps its arguments.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub capture: bool,
    /// Directories, links resolved, below which its sessions work; empty for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roots: Vec<PathBuf>,
}

/// Why a tool was not registered or removed.
#[derive(Debug, Error)]
pub enum HostToolFailure {
    /// It cannot be registered as it is.
    #[error(transparent)]
    Invalid(#[from] HostToolError),
    /// It cannot be registered as it is, to capture arguments.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// The schema of a capture tool is too large.
    #[error("`schema`: it has {0} bytes, at most {LARGEST_SCHEMA}")]
    LargeSchema(usize),
    /// Its calls cannot be sent there.
    #[error("{0}")]
    Webhook(String),
    /// Its secret cannot be sealed.
    #[error("the secret of the webhook cannot be kept: {0}")]
    Secret(std::io::Error),
    /// There is a tool of its name.
    #[error(
        "there is a tool \"{0}\" already: give this one another name, or remove the registered one first"
    )]
    Taken(String),
    /// The tenant has as many as it may have.
    #[error("there are {MOST_HOST_TOOLS} registered tools, the most that there may be: remove one first")]
    TooMany,
    /// There is none of this name.
    #[error("there is no registered tool \"{0}\"")]
    Missing(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The host tools of all tenants. Clones are the same.
#[derive(Clone)]
pub struct HostTools(Arc<Inner>);

struct Inner {
    shelf: Arc<dyn Shelf>,
    /// Secrets of webhooks.
    vault: Vault,
    /// The way to webhooks.
    door: Door,
    /// Names of other tools.
    taken: HashSet<String>,
    tenants: Mutex<HashMap<Arc<str>, Tenant>>,
    /// Writers take turns.
    turn: Mutex<()>,
    changed: watch::Sender<u64>,
}

type Tenant = BTreeMap<String, Registered>;

struct Registered {
    spec: Arc<HostToolSpec>,
    /// `None` where another tool has its name by now.
    tool: Option<Arc<dyn Tool>>,
}

/// What the shelf holds for one tool.
#[derive(Serialize, Deserialize)]
struct Stored {
    version: u32,
    tool: HostToolSpec,
}

impl std::fmt::Debug for HostTools {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostTools").finish_non_exhaustive()
    }
}

impl HostTools {
    /// The tools that the shelf holds, without those whose names are `taken` by now. Secrets are kept sealed in `folder`, and
    /// calls are sent through `door`. Blocks. One that cannot be read is left
    /// out, and said in the engine's own log.
    ///
    /// # Errors
    /// The shelf cannot be read.
    pub fn open(
        shelf: Arc<dyn Shelf>,
        taken: HashSet<String>,
        folder: PathBuf,
        door: Door,
    ) -> Result<Self, StoreError> {
        let vault = Vault::new(folder);
        let mut tenants: HashMap<Arc<str>, Tenant> = HashMap::new();
        for (key, value) in shelf.scan(PREFIX)? {
            let (tenant, spec, tool) = match read(&key, &value) {
                Ok(read) => read,
                Err(reason) => {
                    tracing::error!(key, reason, "a registered tool cannot be read, and is left out");
                    continue;
                }
            };
            let is_taken = taken.contains(&spec.name);
            if is_taken {
                tracing::warn!(
                    tool = %spec.name,
                    "a registered tool is left out: the engine has a tool of its name by now"
                );
            }
            let tool = if is_taken { None } else { sending(&vault, &door, &tenant, &spec, tool) };
            let registered = Registered { spec: Arc::new(spec), tool };
            tenants.entry(tenant).or_default().insert(registered.spec.name.clone(), registered);
        }
        let (tenants, changed) = (Mutex::new(tenants), watch::Sender::new(0));
        Ok(Self(Arc::new(Inner { shelf, vault, door, taken, tenants, turn: Mutex::default(), changed })))
    }

    /// Registers a tool of `tenant`. On return it is durable, and sessions have it. Blocks.
    ///
    /// # Errors
    /// It cannot be registered as it is, there is one of its name, or there are too many.
    pub fn register(
        &self,
        tenant: &str,
        mut spec: HostToolSpec,
        webhook: Option<NewWebhook>,
    ) -> Result<Arc<HostToolSpec>, HostToolFailure> {
        let Inner { shelf, vault, door, taken, tenants, turn, .. } = &*self.0;
        let tool: Arc<dyn Tool> = match (Built::of(&spec)?, &webhook) {
            (Built::Capture(tool), _) => Arc::new(tool),
            (Built::Host(tool), None) => Arc::new(tool),
            (Built::Host(tool), Some(NewWebhook { url, secret })) => {
                let delivery = Webhook::new(url, secret, door.clone()).map_err(HostToolFailure::Webhook)?;
                Arc::new(tool.delivered(Arc::new(delivery)))
            }
        };
        spec.risk = tool.risk();
        spec.webhook = webhook.as_ref().map(|webhook| webhook.url.clone());
        let _turn = turn.lock();
        let (is_known, count) = tenants.lock().get(tenant).map_or((false, 0), |tools| {
            (tools.get(&spec.name).is_some_and(|known| known.tool.is_some()), tools.len())
        });
        if taken.contains(&spec.name) || is_known {
            return Err(HostToolFailure::Taken(spec.name));
        }
        if count >= MOST_HOST_TOOLS {
            return Err(HostToolFailure::TooMany);
        }
        if let Some(webhook) = &webhook {
            webhook.seal(&secret_of(vault, tenant, &spec.name)).map_err(HostToolFailure::Secret)?;
        }
        let version = if spec.capture { CAPTURE_VERSION } else { VERSION };
        let stored = Stored { version, tool: spec };
        let value = serde_json::to_vec(&stored).map_err(|error| StoreError::Io(error.into()))?;
        let spec = Arc::new(stored.tool);
        // One that cannot be used, or be read, is replaced.
        let key = key(tenant, &spec.name);
        let before = shelf.get(&key)?;
        if !shelf.compare_and_set(&key, before.as_deref(), Some(&value))? {
            return Err(HostToolFailure::Taken(spec.name.clone()));
        }
        let registered = Registered { spec: Arc::clone(&spec), tool: Some(tool) };
        tenants.lock().entry(tenant.into()).or_default().insert(spec.name.clone(), registered);
        self.0.changed.send_modify(|revision| *revision += 1);
        Ok(spec)
    }

    /// Removes a tool of `tenant`, for whoever `may` remove it: else there is none. On return that is durable. Blocks.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn remove(
        &self,
        tenant: &str,
        name: &str,
        may: impl Fn(&HostToolSpec) -> bool,
    ) -> Result<(), HostToolFailure> {
        let Inner { shelf, vault, tenants, turn, .. } = &*self.0;
        let _turn = turn.lock();
        let missing = || HostToolFailure::Missing(name.to_owned());
        let spec = tenants.lock().get(tenant).and_then(|tools| Some(Arc::clone(&tools.get(name)?.spec)));
        spec.filter(|spec| may(spec)).ok_or_else(missing)?;
        let key = key(tenant, name);
        while let Some(before) = shelf.get(&key)? {
            if shelf.compare_and_set(&key, Some(&before), None)? {
                break;
            }
        }
        if let Err(error) = secret_of(vault, tenant, name).remove() {
            tracing::warn!(%error, tool = name, "the secret of a removed tool is left");
        }
        let mut all = tenants.lock();
        if let Some(tools) = all.get_mut(tenant) {
            tools.remove(name);
            if tools.is_empty() {
                all.remove(tenant);
            }
        }
        drop(all);
        self.0.changed.send_modify(|revision| *revision += 1);
        Ok(())
    }

    /// The tools of `tenant`, by name, without those whose names other tools have by now.
    pub fn list(&self, tenant: &str) -> Vec<Arc<HostToolSpec>> {
        let tenants = self.0.tenants.lock();
        let tools = tenants.get(tenant).into_iter().flat_map(BTreeMap::values);
        tools.filter(|tool| tool.tool.is_some()).map(|tool| Arc::clone(&tool.spec)).collect()
    }
}

impl HostToolSpec {
    /// The schema of its arguments.
    pub fn parameters(&self) -> Value {
        if self.capture { capture::parameters(&self.schema) } else { self.schema.clone() }
    }

    /// Whether sessions in `workspace` have it.
    fn serves(&self, workspace: &Path) -> bool {
        self.roots.is_empty() || self.roots.iter().any(|root| workspace.starts_with(root))
    }
}

impl ToolSource for HostTools {
    fn tools(&self, scope: &ToolScope) -> Arc<[Arc<dyn Tool>]> {
        let tenants = self.0.tenants.lock();
        let tools = tenants.get(&scope.tenant).into_iter().flat_map(BTreeMap::values);
        tools.filter(|tool| tool.spec.serves(&scope.workspace)).filter_map(|tool| tool.tool.clone()).collect()
    }

    fn changed(&self) -> watch::Receiver<u64> {
        self.0.changed.subscribe()
    }
}

/// A tool without the way to its webhook.
enum Built {
    Host(HostTool),
    Capture(CaptureTool),
}

impl Built {
    /// The tool that was registered so.
    ///
    /// # Errors
    /// It cannot be one.
    fn of(spec: &HostToolSpec) -> Result<Self, HostToolFailure> {
        let HostToolSpec { name, description, schema, risk, .. } = spec;
        if !spec.capture {
            return Ok(Self::Host(HostTool::new(name, description, schema, *risk)?));
        }
        let bytes = schema.to_string().len();
        if bytes > LARGEST_SCHEMA {
            return Err(HostToolFailure::LargeSchema(bytes));
        }
        Ok(Self::Capture(CaptureTool::new(name, description, schema)?))
    }
}

fn secret_of(vault: &Vault, tenant: &str, name: &str) -> VaultFile {
    vault.file(tenant, &format!("host-tool {name}"))
}

/// A tool that was read, with the way to its webhook. Without its secret it is left out, which is said in the engine's own log.
fn sending(
    vault: &Vault,
    door: &Door,
    tenant: &str,
    spec: &HostToolSpec,
    tool: Built,
) -> Option<Arc<dyn Tool>> {
    let tool = match tool {
        Built::Capture(tool) => return Some(Arc::new(tool)),
        Built::Host(tool) => tool,
    };
    let Some(url) = &spec.webhook else { return Some(Arc::new(tool)) };
    let sealed = secret_of(vault, tenant, &spec.name).load().map_err(|error| error.to_string());
    let secret = sealed.and_then(|secret| secret.ok_or_else(|| "its secret is gone".to_owned()));
    let secret = secret.and_then(|secret| String::from_utf8(secret).map_err(|error| error.to_string()));
    match secret.and_then(|secret| Webhook::new(url, &secret.into(), door.clone())) {
        Ok(webhook) => Some(Arc::new(tool.delivered(Arc::new(webhook)))),
        Err(reason) => {
            tracing::error!(tool = %spec.name, reason, "a registered tool is left out: register it again");
            None
        }
    }
}

fn key(tenant: &str, name: &str) -> String {
    let hex: String = tenant.bytes().map(|byte| format!("{byte:02x}")).collect();
    format!("{PREFIX}{hex}/{name}")
}

/// The tool that a key of the shelf holds, and whose it is.
fn read(key: &str, value: &[u8]) -> Result<(Arc<str>, HostToolSpec, Built), String> {
    let stored: Stored = serde_json::from_slice(value).map_err(|error| error.to_string())?;
    if !(VERSION..=CAPTURE_VERSION).contains(&stored.version) {
        let text =
            format!("it is of version {}, and this engine reads up to {CAPTURE_VERSION}", stored.version);
        return Err(text);
    }
    let spec = stored.tool;
    let tenant = key.strip_prefix(PREFIX).and_then(|rest| unhex(rest.split_once('/')?.0));
    let tenant = tenant.ok_or("its key names no tenant")?;
    let tool = Built::of(&spec);
    Ok((tenant.into(), spec, tool.map_err(|error| error.to_string())?))
}

fn unhex(digits: &str) -> Option<String> {
    let pairs = (0..digits.len()).step_by(2);
    let bytes: Option<Vec<u8>> =
        pairs.map(|at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok()).collect();
    String::from_utf8(bytes?).ok()
}
