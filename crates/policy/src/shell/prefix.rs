//! What "always" would allow: a prefix of a command that says what it does, and never one behind which anything fits, or a file that
//! it writes.

use super::effects;
use super::words::Word;

/// Programs that run what their arguments say: only the very same command can be allowed.
const RUNNERS: &[&str] = &[
    "ash",
    "awk",
    "bash",
    "bun",
    "bunx",
    "busybox",
    "chroot",
    "command",
    "csh",
    "dash",
    "deno",
    "doas",
    "env",
    "eval",
    "exec",
    "expect",
    "find",
    "fish",
    "flock",
    "gawk",
    "gdb",
    "ionice",
    "java",
    "ksh",
    "lua",
    "make",
    "mawk",
    "nice",
    "node",
    "nohup",
    "nsenter",
    "npx",
    "osascript",
    "parallel",
    "perl",
    "php",
    "pnpx",
    "pypy",
    "python",
    "python2",
    "python3",
    "rscript",
    "ruby",
    "script",
    "sed",
    "setsid",
    "sh",
    "source",
    "ssh",
    "stdbuf",
    "strace",
    "su",
    "sudo",
    "tclsh",
    "time",
    "timeout",
    "trap",
    "tsx",
    "unshare",
    "vi",
    "vim",
    "watch",
    "xargs",
    "zsh",
    ".",
];

/// Programs that destroy: only the very same command can be allowed.
const DESTROYERS: &[&str] = &[
    "chgrp", "chmod", "chown", "dd", "fdisk", "kill", "killall", "mkfs", "mv", "parted", "pkill", "reboot",
    "rm", "rmdir", "shred", "shutdown", "truncate", "umount", "unlink",
];

/// Programs whose first argument says what they do.
const WITH_SUBCOMMAND: &[&str] = &[
    "apt",
    "apt-get",
    "brew",
    "bundle",
    "cargo",
    "composer",
    "conda",
    "dnf",
    "docker",
    "dotnet",
    "flutter",
    "gem",
    "git",
    "go",
    "gradle",
    "helm",
    "hg",
    "jj",
    "kubectl",
    "mix",
    "mvn",
    "npm",
    "pip",
    "pip3",
    "pnpm",
    "podman",
    "poetry",
    "rails",
    "rustup",
    "svn",
    "swift",
    "systemctl",
    "terraform",
    "uv",
    "yarn",
];

/// Programs whose first two arguments say what they do.
const WITH_TWO: &[&str] = &["aws", "az", "gcloud", "gh", "glab"];

/// Subcommands behind which another word says what is done.
const LONGER: &[(&str, &str)] = &[
    ("docker", "compose"),
    ("git", "remote"),
    ("git", "stash"),
    ("git", "worktree"),
    ("npm", "run"),
    ("npm", "run-script"),
    ("pnpm", "run"),
    ("uv", "pip"),
    ("yarn", "run"),
];

/// Subcommands that run what follows.
const RUNNING: &[(&str, &str)] = &[
    ("bundle", "exec"),
    ("cargo", "run"),
    ("composer", "exec"),
    ("conda", "run"),
    ("docker", "exec"),
    ("docker", "run"),
    ("dotnet", "run"),
    ("git", "bisect"),
    ("git", "config"),
    ("git", "submodule"),
    ("go", "run"),
    ("kubectl", "exec"),
    ("kubectl", "run"),
    ("mix", "run"),
    ("npm", "exec"),
    ("pnpm", "dlx"),
    ("pnpm", "exec"),
    ("podman", "exec"),
    ("podman", "run"),
    ("poetry", "run"),
    ("rails", "runner"),
    ("rustup", "run"),
    ("uv", "run"),
    ("yarn", "dlx"),
    ("yarn", "exec"),
];

/// The patterns that "always" would store for a command without doubts.
pub(super) fn always(words: &[Word]) -> Vec<String> {
    let texts: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
    let exact = || {
        let text = texts.join(" ");
        let plain = text.len() <= 500 && !text.contains(['*', '?', '\n']);
        if plain { vec![text] } else { Vec::new() }
    };
    let Some(name) = texts.first().copied() else { return Vec::new() };
    if name.contains(['/', '*', '?']) || RUNNERS.contains(&name) || DESTROYERS.contains(&name) {
        return exact();
    }
    if effects::is_writer(name, texts.get(1).copied()) {
        return exact();
    }
    let pair = |list: &[(&str, &str)]| {
        list.iter().any(|(program, subcommand)| *program == name && texts.get(1) == Some(subcommand))
    };
    let arity = match () {
        () if pair(RUNNING) => return exact(),
        () if pair(LONGER) || WITH_TWO.contains(&name) => 3,
        () if WITH_SUBCOMMAND.contains(&name) => 2,
        () => 1,
    };
    let Some(prefix) = texts.get(..arity) else { return exact() };
    let says =
        |word: &&str| !word.is_empty() && !word.starts_with('-') && !word.contains([' ', '*', '?', '\n']);
    if !prefix.iter().all(says) {
        return exact();
    }
    // A script of a project is what it is; arguments may make something else of it.
    let is_script = matches!(texts.get(1), Some(&"run" | &"run-script"));
    if is_script && texts.len() == arity { exact() } else { vec![format!("{} *", prefix.join(" "))] }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offered(text: &str) -> Vec<String> {
        let words = text.split(' ').map(Word::plain);
        always(&words.collect::<Vec<_>>())
    }

    #[test]
    fn a_useful_prefix_is_offered() {
        assert_eq!(offered("git commit -m x"), ["git commit *"]);
        assert_eq!(offered("npm run build"), ["npm run build"]);
        assert_eq!(offered("npm run build --watch"), ["npm run build *"]);
        assert_eq!(offered("gh pr list"), ["gh pr list *"]);
        assert_eq!(offered("ls -l src"), ["ls *"]);
        assert_eq!(offered("cargo test"), ["cargo test *"]);
    }

    #[test]
    fn behind_what_runs_anything_writes_or_destroys_only_the_same_is_allowed() {
        for text in [
            "bash x.sh",
            "python -c code",
            "rm -r a",
            "sudo ls",
            "cargo run a",
            "npx x",
            "git",
            "git -C a status",
            "./x y",
            "tee a",
            "cp a b",
            "mkdir a",
            "tar cf a.tar b",
            "tar tf a.tar",
            "uniq a",
            "git checkout main",
            "git rm a",
        ] {
            assert_eq!(offered(text), [text], "{text}");
        }
        assert!(offered("rm a*").is_empty());
    }
}
