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
