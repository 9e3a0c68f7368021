//! Rules and walls: what a file says, or why it cannot.

use playhouse_actors::Moderate;
use playhouse_policy::Rules;
use playhouse_protocol::{Sandbox, WallsAllowed};

use super::*;

const HOME: &str = "/home/ada";

/// The settings of an operator's file, for a user with a home.
fn loaded(text: &str) -> Settings {
    let place = Place::new();
    place.write("operator/config.toml", text);
    let variables = |name: &str| (name == "HOME").then(|| HOME.to_owned());
    Settings::load(Some(&place.path("operator/config.toml")), &variables).unwrap()
}

/// One line for each rule.
fn shown(rules: &Rules) -> Vec<String> {
    rules.iter().map(|rule| format!("{} {} {}", rule.permission, rule.pattern, rule.action.name())).collect()
}

#[test]
fn rules_are_in_the_order_of_the_file() {
    for (text, expected) in [
        ("", &[][..]),
        (
            "[permissions]\n\"*\" = \"allow\"\nexternal_directory = \"ask\"\nedit = \"deny\"",
            &["* * allow", "external_directory * ask", "edit * deny"],
        ),
        (
            "[permissions]\nbash = { \"*\" = \"ask\", \"git status *\" = \"allow\", \"rm -rf *\" = \"deny\" }",
            &["bash * ask", "bash git status * allow", "bash rm -rf * deny"],
        ),
        // A table that goes on further down.
        (
            "[permissions]\nbash.\"git *\" = \"allow\"\n\"*\" = \"ask\"\nbash.\"git push *\" = \"deny\"",
            &["bash git * allow", "* * ask", "bash git push * deny"],
        ),
        (
            "[permissions.webfetch]\n\"https://a.example/*\" = \"allow\"\n[permissions]\n\"*\" = \"ask\"",
            &["webfetch https://a.example/* allow", "* * ask"],
        ),
        // The home directory stands at the beginning only.
        (
            "permissions = { read = { \"~/notes/*\" = \"allow\", \"$HOME\" = \"deny\", \"a~/b\" = \"ask\" }, edit = { \"~bob\" = \"deny\" } }",
            &["read /home/ada/notes/* allow", "read /home/ada deny", "read a~/b ask", "edit ~bob deny"],
        ),
        ("permissions.bash = {}", &[]),
    ] {
        assert_eq!(shown(&loaded(text).permissions), expected, "{text}");
    }
}

#[test]
fn what_is_no_rule_is_told_with_its_line() {
    assert_snapshot!(each(&[
        "permissions.bash = \"sometimes\"",
        "[permissions]\nbash = \"alow\"",
        "[permissions]\n\nbash = { \"git *\" = \"allow\", \"rm *\" = \"Deny\" }",
        "[permissions.bash]\n\"git *\" = \"allow\"\n\"rm *\" = \"never\"",
        "[permissions]\nbash = true",
        "[permissions]\nbash = [\"git *\"]",
        "[permissions]\nbash = { \"git *\" = true }",
        "[permissions.bash.git]\nstatus = \"allow\"",
        "[permissions]\nbash = { \"\" = \"deny\" }",
        "[permissions]\nbash = { \" \" = \"deny\" }",
        "[permissions]\n\"\" = \"deny\"",
        "[permissions]\nbash = { \"~/bin/*\" = \"allow\" }",
        "[permissions]\nread = { \"$HOME\" = \"deny\" }",
        "[permissions]\nbash = \"ask\"\nbash = \"deny\"",
        "[permissions]\nbash = { \"a\" = \"ask\", \"a\" = \"deny\" }",
        "[permissions]\nbash = \"ask\"\n[permissions.bash]\n\"a\" = \"deny\"",
        "permissions = \"deny\"",
        "permission.bash = \"deny\"",
    ], operator), @r#"
        operator/config.toml:1: `permissions.bash`: is "sometimes", expected allow, ask or deny
        operator/config.toml:2: `permissions.bash`: is "alow", expected allow, ask or deny; did you mean "allow"?
        operator/config.toml:3: `permissions.bash."rm *"`: is "Deny", expected allow, ask or deny; did you mean "deny"?
        operator/config.toml:3: `permissions.bash."rm *"`: is "never", expected allow, ask or deny
        operator/config.toml:2: `permissions.bash` is true, expected allow, ask or deny, or a table of patterns with one for each
        operator/config.toml:2: `permissions.bash` is a list, expected allow, ask or deny, or a table of patterns with one for each
        operator/config.toml:2: `permissions.bash."git *"` is true, expected allow, ask or deny
        operator/config.toml:1: `permissions.bash.git` is a table, expected allow, ask or deny
        operator/config.toml:2: `permissions.bash.""`: the pattern is empty, and so about nothing: use "*" for everything
        operator/config.toml:2: `permissions.bash." "`: the pattern is empty, and so about nothing: use "*" for everything
        operator/config.toml:2: `permissions.""`: the name of the permission is empty, and so about nothing: use "*" for everything
        operator/config.toml:2: `permissions.bash."~/bin/*"`: the pattern begins with the home directory, and HOME is not set
        operator/config.toml:2: `permissions.read."$HOME"`: the pattern begins with the home directory, and HOME is not set
        operator/config.toml:3: not valid TOML: duplicate key
        operator/config.toml:2: not valid TOML: duplicate key
        operator/config.toml:3: not valid TOML: duplicate key
        operator/config.toml:1: `permissions` is text, expected a table
        operator/config.toml:1: unknown key `permission`; known here are agent, asking, billing, budgets, capture, context, formatter, lsp, mcp, metrics, model, moderate, permissions, prompt, providers, resume, retry, rules, sandbox, server, sessions, sinks, small_model, snapshots, store, store_on_damage, tasks, timeouts, tools, walls; did you mean "permissions"?
        "#);
}

#[test]
fn walls_are_carried_over() {
    let settings = loaded("");
    assert_eq!((settings.sandbox, settings.moderate), (Sandbox::BestEffort, Moderate::Ask));
    assert_eq!((settings.walls, settings.roots), (WallsAllowed::default(), Vec::new()));
    let settings = loaded(
        "sandbox = \"required\"\nmoderate = \"allow\"\n[walls]\nread = [\"/opt/sdk/\", \"~/.cargo\", \"/\"]\n\
         write = [\"$HOME/./shared\"]\nnetwork = true\nroots = [\"~\", \"/srv/git\"]",
    );
    assert_eq!((settings.sandbox, settings.moderate), (Sandbox::Required, Moderate::Allow));
    assert_eq!(settings.walls.read, ["/opt/sdk", "/home/ada/.cargo", "/"]);
    assert_eq!(settings.walls.write, ["/home/ada/shared"]);
    assert!(settings.walls.network && !settings.walls.read_only);
    assert_eq!(settings.roots, [Path::new(HOME), Path::new("/srv/git")]);
    assert_eq!(loaded("sandbox = \"off\"").sandbox, Sandbox::Off);
    assert_eq!(loaded("moderate = \"ask\"").moderate, Moderate::Ask);
}

#[test]
fn walls_that_cannot_be_are_told_with_their_line() {
    assert_snapshot!(each(&[
        "\nsandbox = \"requierd\"",
        "sandbox = false",
        "sandbox = \"none\"",
        "moderate = \"deny\"",
        "[walls]\nread = [\"sdk\"]",
        "[walls]\nread = [\"~/sdk\"]",
        "[walls]\nread = \"/opt\"",
        "[walls]\nwrite = [\"/opt/../etc\"]",
        "[walls]\nwrite = [\"/opt\", \"//\"]",
        "[walls]\nwrite = [\"\"]",
        "[walls]\nroots = [\"/srv/\\u0000\"]",
        "[walls]\nnetwork = \"yes\"",
        "[walls]\nreads = []",
        "walls = \"off\"",
    ], operator), @r#"
        operator/config.toml:2: `sandbox`: is "requierd", expected required, best-effort or off; did you mean "required"?
        operator/config.toml:1: `sandbox` is false, expected text
        operator/config.toml:1: `sandbox`: is "none", expected required, best-effort or off
        operator/config.toml:1: `moderate`: is "deny", expected allow or ask
        operator/config.toml:2: `walls.read`: "sdk" is not an absolute path: begin it with `/`, or with `~/` (HOME is not set)
        operator/config.toml:2: `walls.read`: "~/sdk" is not an absolute path: begin it with `/`, or with `~/` (HOME is not set)
        operator/config.toml:2: `walls.read` is text, expected a list of texts
        operator/config.toml:2: `walls.write`: "/opt/../etc" holds `..`: write the path without it
        operator/config.toml:2: `walls.write`: "/" would let everything be changed: set `sandbox = "off"` for that
        operator/config.toml:2: `walls.write`: "" is not an absolute path: begin it with `/`, or with `~/` (HOME is not set)
        operator/config.toml:2: `walls.roots`: "/srv/\0" holds control characters
        operator/config.toml:2: `walls.network` is text, expected true or false
        operator/config.toml:2: unknown key `walls.reads`; known here are network, read, roots, write; did you mean "read"?
        operator/config.toml:1: `walls` is text, expected a table
        "#);
}

#[test]
fn a_workspace_makes_permissions_stricter_and_never_looser() {
    let place = Place::new();
    place.write("operator/config.toml", "[permissions]\nedit = \"deny\"\nread = \"allow\"");
    let text = "[permissions]\nbash = { \"*\" = \"ask\", \"curl *\" = \"deny\" }\nedit = \"ask\"";
    place.write("workspace/.playhouse/config.toml", text);
    let settings = place.load().unwrap();
    assert!(settings.workspace_permissions.is_empty());
    let settings = settings.with_workspace(&place.path("workspace")).unwrap();
    assert_eq!(shown(&settings.permissions), ["edit * deny", "read * allow"]);
    assert_eq!(shown(&settings.workspace_permissions), ["bash * ask", "bash curl * deny", "edit * ask"]);
    assert_snapshot!(each(&[
        "[permissions]\nbash = \"allow\"",
        "[permissions]\nbash = { \"rm *\" = \"deny\",  \"git *\" = \"allow\" }",
        "[permissions]\n\"*\" = \"allow\"",
        "[permissions]\nbash = \"denied\"",
        "[permissions]\nbash = { \"\" = \"deny\" }",
        "permission = \"deny\"",
    ], workspace), @r#"
        workspace/.playhouse/config.toml:2: `permissions.bash`: is "allow", and a workspace can only make permissions stricter, with "ask" or "deny"
        workspace/.playhouse/config.toml:2: `permissions.bash."git *"`: is "allow", and a workspace can only make permissions stricter, with "ask" or "deny"
        workspace/.playhouse/config.toml:2: `permissions."*"`: is "allow", and a workspace can only make permissions stricter, with "ask" or "deny"
        workspace/.playhouse/config.toml:2: `permissions.bash`: is "denied", expected allow, ask or deny; did you mean "deny"?
        workspace/.playhouse/config.toml:2: `permissions.bash.""`: the pattern is empty, and so about nothing: use "*" for everything
        workspace/.playhouse/config.toml:1: `permission` may not be set by a workspace: they are called `permissions`; a workspace may set model, agent, rules, permissions
        "#);
}

#[test]
fn the_rules_of_an_agent_need_a_home_too() {
    let place = Place::new();
    place.write("operator/config.toml", "");
    let head = "---\ndescription: d\npermission:\n  edit: { ~/notes/*: allow }\n---";
    place.write("operator/agents/scribe.md", head);
    assert_snapshot!(place.message(place.load().unwrap_err()), @r#"
        operator/agents/scribe.md:4: `permission`, "~/notes/*": the pattern begins with the home directory, and HOME is not set
        "#);
    place.write("operator/agents/scribe.md", head.replace("allow", "perhaps"));
    assert_snapshot!(place.message(place.load().unwrap_err()), @r#"
        operator/agents/scribe.md:4: `permission.edit."~/notes/*"`: is "perhaps", expected allow, ask or deny
        "#);
}

#[test]
fn what_belongs_to_the_operator_is_known_whether_it_is_there_or_not() {
    let place = Place::new();
    let own = |flag: Option<&Path>| {
        let home = place.path("home").to_str().unwrap().to_owned();
        let settings = Settings::load(flag, &|name| (name == "HOME").then(|| home.clone())).unwrap();
        let shown = settings.own.iter().map(|path| path.strip_prefix(place.root.path()).unwrap());
        shown.map(|path| path.to_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let folder = "home/.config/playhouse";
    let usual =
        ["config.toml", "models.json", "agents", "commands", "skills"].map(|name| format!("{folder}/{name}"));
    assert_eq!(own(None), [&usual[..], &[folder.to_owned()]].concat());
    // A folder that somebody named may be the workspace itself.
    place.write("operator/mine.toml", "");
    assert_eq!(
        own(Some(&place.path("operator/mine.toml"))),
        ["mine.toml", "models.json", "agents", "commands", "skills"].map(|name| format!("operator/{name}"))
    );
}
