use std::os::unix::fs::PermissionsExt as _;

use playhouse_protocol::Timestamp;

use super::*;
use crate::base::Ids;

fn scope(tenant: &str, workspace: &Path) -> ToolScope {
    let session = Ids::after(Timestamp::default()).next();
    ToolScope { tenant: tenant.into(), workspace: workspace.into(), session }
}

/// Servers of a workspace that brings the only program, and whether full walls can be built.
fn stage(workspace: &Path, has_full_walls: bool) -> LspServers {
    let program = workspace.join("node_modules/.bin/acc-server");
    fs_err::create_dir_all(program.parent().unwrap()).unwrap();
    fs_err::write(&program, "#!/bin/sh\n").unwrap();
    fs_err::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    fs_err::write(workspace.join("a.acc"), "").unwrap();
    let entry = ServerEntry::new("acc", vec!["acc-server".to_owned()], vec![".acc".to_owned()]);
    let servers = LspServers::new(LspOptions {
        entries: vec![ServerEntry { is_configured: false, ..entry }],
        folder: workspace.with_file_name("homes"),
        runtime: Handle::current(),
        sandbox: Sandbox::BestEffort,
        hidden: Vec::new(),
        roots: Vec::new(),
        limits: LspLimits { servers_per_tenant: 1, memory: 1 << 30, total_memory: 1 << 30 },
    });
    servers.0.has_full_walls.set(has_full_walls).unwrap();
    servers
}

#[tokio::test]
async fn a_program_of_the_workspace_is_asked_for_once_per_content_where_walls_are_not_full() {
    let folder = tempfile::tempdir().unwrap();
    let workspace = fs_err::canonicalize(folder.path()).unwrap().join("work");
    let servers = stage(&workspace, false);
    let (one, other, keyed) =
        (scope("local", &workspace), scope("local", &workspace), scope("acme", &workspace));
    let shown = |scope: &ToolScope| servers.tools(scope).len();
    servers.load(&one);
    let [start] = &servers.starts(&one)[..] else { panic!("one program is asked for") };
    assert!(start.preview.ends_with("node_modules/.bin/acc-server"), "{}", start.preview);
    assert_eq!(
        (shown(&one), servers.starts(&keyed).len()),
        (0, 0),
        "nobody can be asked for clients with keys"
    );
    assert!(servers.0.jobs(&one, [workspace.join("a.acc")]).await.is_empty());

    servers.agreed(&one, &start.subject, Agreed::Session);
    assert_eq!((shown(&one), shown(&other), shown(&keyed)), (1, 0, 0));
    servers.agreed(&other, &start.subject, Agreed::Workspace);
    assert_eq!((shown(&one), shown(&other), shown(&keyed)), (1, 1, 0));
    let job = servers.0.jobs(&one, [workspace.join("a.acc"), workspace.join("a.txt")]).await.pop().unwrap();
    assert!(matches!(job.key.trust, Trust::Agreed(_)) && job.paths.len() == 1);

    // Another content is another program.
    fs_err::write(workspace.join("node_modules/.bin/acc-server"), "#!/bin/sh\nexit 1\n").unwrap();
    let error = servers.0.lease(&job.key, one.session).await.unwrap_err();
    assert!(error.contains("has changed since"), "{error}");
    servers.load(&one);
    assert_eq!((shown(&one), shown(&other)), (0, 0));
    assert_ne!(servers.starts(&one)[0].subject, start.subject);
}

#[tokio::test]
async fn in_full_walls_it_is_not_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let workspace = fs_err::canonicalize(folder.path()).unwrap().join("work");
    let servers = stage(&workspace, true);
    let keyed = scope("acme", &workspace);
    servers.load(&keyed);
    assert_eq!((servers.tools(&keyed).len(), servers.starts(&keyed).len()), (1, 0));
    let job = servers.0.jobs(&keyed, [workspace.join("a.acc")]).await.pop().unwrap();
    assert!(matches!(job.key.trust, Trust::Walls(_)));
}

#[tokio::test]
async fn of_a_tenant_no_more_run_than_may() {
    let folder = tempfile::tempdir().unwrap();
    let workspace = fs_err::canonicalize(folder.path()).unwrap().join("work");
    let servers = stage(&workspace, true);
    let scope = scope("local", &workspace);
    servers.load(&scope);
    let job = servers.0.jobs(&scope, [workspace.join("a.acc")]).await.pop().unwrap();
    // One that says nothing, and is being started.
    let silent =
        ServerKey { program: Path::new("/usr/bin/tail").into(), trust: Trust::Operator, ..job.key.clone() };
    let starting = tokio::spawn({
        let servers = servers.clone();
        async move { servers.0.lease(&silent, scope.session).await.map(drop) }
    });
    while servers.0.leases.status().is_empty() {
        tokio::task::yield_now().await;
    }
    let error = servers.0.lease(&job.key, scope.session).await.unwrap_err();
    assert!(error.contains("1 run already (`lsp.servers_per_tenant`)"), "{error}");
    starting.abort();
}

/// A server that writes down in its home what it hears of files.
const HEARS: &str = r#"
while :; do
    length=0
    while IFS= read -r line || exit 0; do
        line=${line%$'\r'}
        [ -n "$line" ] || break
        case "$line" in Content-Length:*) length=${line#*: } ;; esac
    done
    IFS= read -r -N "$length" body || exit 0
    id=${body#*\"id\":}
    answer='{"jsonrpc":"2.0","id":'"${id%%[,\}]*}"',"result":{"capabilities":{}}}'
    case "$body" in
    *'"method":"initialize"'* | *'"method":"shutdown"'*) printf 'Content-Length: %d\r\n\r\n%s' "${#answer}" "$answer" ;;
    *didChangeWatchedFiles*) printf '%s\n' "$body" >> "$HOME/heard" ;;
    esac
done"#;

/// Waits until the server of these folders was told of a change; what it was told.
async fn heard(homes: &Path) -> String {
    loop {
        let homes = homes.to_owned();
        let found = blocking(move || {
            let mut folders = vec![homes];
            while let Some(folder) = folders.pop() {
                for entry in fs_err::read_dir(folder).into_iter().flatten().flatten() {
                    match entry.file_name() == "heard" {
                        true => return fs_err::read_to_string(entry.path()).ok(),
                        false => folders.push(entry.path()),
                    }
                }
            }
            None
        });
        match found.await.filter(|text| text.ends_with('\n')) {
            Some(text) => return text,
            None => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

#[tokio::test]
async fn servers_hear_of_reverts_and_of_sessions_in_folders_below() {
    let folder = tempfile::tempdir().unwrap();
    let root = fs_err::canonicalize(folder.path()).unwrap();
    let (workspace, below) = (root.join("work"), root.join("work/below"));
    fs_err::create_dir_all(&below).unwrap();
    fs_err::write(workspace.join("a.acc"), "").unwrap();
    let (changed, one, other) = (below.join("b.acc"), scope("local", &workspace), scope("acme", &below));
    let changes = || vec![(changed.clone(), Touch::Made), (root.join("elsewhere"), Touch::Made)];
    for is_revert in [true, false] {
        let homes = root.join(format!("homes-{is_revert}"));
        let command = ["bash", "-c", HEARS].map(str::to_owned).to_vec();
        let servers = LspServers::new(LspOptions {
            entries: vec![ServerEntry::new("acc", command, vec![".acc".to_owned()])],
            folder: homes.clone(),
            runtime: Handle::current(),
            sandbox: Sandbox::BestEffort,
            hidden: Vec::new(),
            roots: Vec::new(),
            limits: LspLimits { servers_per_tenant: 1, memory: 1 << 30, total_memory: 1 << 30 },
        });
        servers.load(&one);
        let job = servers.0.jobs(&one, [workspace.join("a.acc")]).await.pop().unwrap();
        let lease = servers.0.lease(&job.key, one.session).await.unwrap();
        match is_revert {
            true => servers.tell_all(changes()),
            false => {
                // Its own session told it already.
                servers.0.tell_other_workspaces(&one, vec![(workspace.join("own.acc"), Touch::Made)]);
                servers.0.tell_other_workspaces(&other, changes());
            }
        }
        let heard = heard(&homes).await;
        assert!(heard.contains("b.acc") && !heard.contains("elsewhere"), "{heard}");
        assert!(!heard.contains("own.acc"), "{heard}");
        drop(lease);
        servers.stop().await;
    }
}
