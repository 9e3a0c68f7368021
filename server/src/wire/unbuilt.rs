//! What of the wire is not built: it is answered with 501, in the wire's form, and `docs/wire.md` says so.

use axum::Router;
use axum::routing::{MethodFilter, on};

use super::failure::Failure;
use crate::app::App;

/// Methods, path, and why it is not there. `*` stands for all methods.
const TABLE: &[(&str, &str, &str)] = &[
    ("PATCH", "/config", "the configuration is the operator's"),
    ("PATCH", "/global/config", "the configuration is the operator's"),
    ("POST", "/global/dispose", "directories hold nothing that could be let go of"),
    ("POST", "/global/upgrade", "the operator upgrades the engine"),
    ("POST", "/instance/dispose", "directories hold nothing that could be let go of"),
    ("*", "/auth/{provider}", "keys of providers are the operator's"),
    ("POST", "/log", "clients keep their own logs"),
    ("GET", "/experimental/console/orgs", "there is no console behind it"),
    ("POST", "/experimental/console/switch", "there is no console behind it"),
    ("*", "/experimental/control-plane/{*rest}", "sessions stay in their directory"),
    (
        "POST",
        "/experimental/session/{id}/background",
        "calls of sub-sessions are not moved to the background",
    ),
    ("*", "/experimental/worktree", "worktrees are not managed"),
    ("*", "/experimental/worktree/{*rest}", "worktrees are not managed"),
    ("*", "/experimental/workspace/{*rest}", "workspaces elsewhere are not managed"),
    ("POST", "/experimental/workspace", "workspaces elsewhere are not managed"),
    ("*", "/experimental/project/{*rest}", "projects are not copied"),
    ("POST", "/vcs/apply", "files are changed by sessions"),
    ("GET", "/skill", "skills are not listed yet"),
    ("POST", "/mcp", "servers of tools are configured by the operator"),
    ("POST", "/project/git/init", "repositories are made by their owners"),
    ("PATCH", "/project/{id}", "projects have no settings"),
    ("*", "/provider/{id}/oauth/{*rest}", "keys of providers are the operator's"),
    ("*", "/pty", "there are no terminals"),
    ("*", "/pty/{*rest}", "there are no terminals"),
    (
        "POST",
        "/session/{id}/init",
        "there is no built-in command: write a template in `.playhouse/commands/`",
    ),
    ("POST,DELETE", "/session/{id}/share", "sessions are not shared"),
    ("DELETE", "/session/{id}/message/{message}", "what was said stays said"),
    ("PATCH,DELETE", "/session/{id}/message/{message}/part/{part}", "what was said stays said"),
    ("*", "/sync/{*rest}", "there is one server"),
    ("*", "/tui/{*rest}", "clients are not driven from here"),
    ("*", "/api/{*rest}", "this is version 1 of the wire"),
];

/// Answers everything in the table.
pub(crate) fn router() -> Router<App> {
    TABLE.iter().fold(Router::new(), |router, (methods, path, why)| {
        let answer = move || async move { Failure::not_built(format!("this is not built: {why}")) };
        match *methods {
            "*" => router.route(path, axum::routing::any(answer)),
            methods => methods
                .split(',')
                .fold(router, |router, method| router.route(path, on(filter(method), answer))),
        }
    })
}

fn filter(method: &str) -> MethodFilter {
    match method {
        "POST" => MethodFilter::POST,
        "PATCH" => MethodFilter::PATCH,
        "DELETE" => MethodFilter::DELETE,
        _ => MethodFilter::GET,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/wire.md");
    const BEGIN: &str = "<!-- what is not built: begin -->\n";
    const END: &str = "<!-- what is not built: end -->";
    /// Set it to write the table into the page instead of comparing it.
    const UPDATE: &str = "PLAYHOUSE_UPDATE_DOCS";

    #[test]
    fn the_page_of_the_wire_holds_what_is_not_built() {
        let page = fs_err::read_to_string(FILE).unwrap();
        let (before, rest) = page.split_once(BEGIN).expect("the mark of the beginning is in the page");
        let (held, after) = rest.split_once(END).expect("the mark of the end is in the page");
        let mut table = "| methods | path | why |\n|---|---|---|\n".to_owned();
        for (methods, path, why) in TABLE {
            let methods = if *methods == "*" { "all" } else { *methods };
            table.push_str(&format!("| {} | `{path}` | {why} |\n", methods.replace(',', ", ")));
        }
        if std::env::var_os(UPDATE).is_some() {
            fs_err::write(FILE, format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
            return;
        }
        let hint = format!(
            "the page is behind: run `{UPDATE}=1 cargo test -p playhouse-server the_page_of_the_wire`"
        );
        assert_eq!(held, table, "{hint}");
    }
}
