//! The commands that run the command in their arguments, and how their own arguments are told from it.

/// How a wrapper's own arguments are told from the command that it runs.
pub(super) struct Wrapper {
    pub(super) name: &'static str,
    /// The word behind which that is so: `exec` of `bundle exec`.
    pub(super) subcommand: Option<&'static str>,
    /// One-letter options without a value.
    pub(super) flags: &'static str,
    /// One-letter options with a value, attached or in the next word.
    pub(super) valued: &'static str,
    /// Long options that must have a value: in the next word, unless it stands behind `=`.
    pub(super) long_valued: &'static [&'static str],
    /// Long options without a value.
    pub(super) long_flags: &'static [&'static str],
    /// Arguments that come before the command.
    pub(super) positional: usize,
    /// Whether `NAME=value` may come before the command.
    pub(super) assignments: bool,
    /// Whether the command gets more arguments than are written.
    pub(super) adds_arguments: bool,
    /// Whether a word may be a whole script.
    pub(super) takes_scripts: bool,
    /// Options with which it only tells about the command.
    pub(super) looks_up: Option<[char; 2]>,
    /// Whether the words after it mean what only it knows.
    pub(super) is_opaque: bool,
    /// Whether it runs nothing where no command is given. Others start a shell, which runs what it reads.
    pub(super) idle_alone: bool,
}

const fn wrapper(name: &'static str, flags: &'static str, valued: &'static str) -> Wrapper {
    Wrapper {
        name,
        subcommand: None,
        flags,
        valued,
        long_valued: &[],
        long_flags: &[],
        positional: 0,
        assignments: false,
        adds_arguments: false,
        takes_scripts: false,
        looks_up: None,
        is_opaque: false,
        idle_alone: false,
    }
}

/// One that is not known well enough to read its options.
const fn runner(name: &'static str) -> Wrapper {
    wrapper(name, "", "")
}

/// One whose words mean what only it knows: a user, a file, a script.
const fn opaque(name: &'static str) -> Wrapper {
    Wrapper { is_opaque: true, ..wrapper(name, "", "") }
}

/// One that runs what stands behind one of its subcommands.
const fn behind(name: &'static str, subcommand: &'static str) -> Wrapper {
    Wrapper { subcommand: Some(subcommand), ..wrapper(name, "", "") }
}

/// The same with one argument before the command: a container, a toolchain.
const fn behind_one(name: &'static str, subcommand: &'static str) -> Wrapper {
    Wrapper { positional: 1, ..behind(name, subcommand) }
}

/// One whose arguments may be read by a shell.
const fn scripts(name: &'static str, flags: &'static str, valued: &'static str) -> Wrapper {
    Wrapper { takes_scripts: true, ..wrapper(name, flags, valued) }
}

pub(super) const WRAPPERS: &[Wrapper] = &[
    Wrapper {
        assignments: true,
        idle_alone: true,
        long_valued: &["--unset", "--chdir"],
        long_flags: &["--ignore-environment", "--null"],
        ..wrapper("env", "i0v", "uC")
    },
    Wrapper {
        assignments: true,
        long_valued: &["--user", "--group", "--chdir", "--host", "--prompt"],
        long_flags: &["--non-interactive", "--login", "--preserve-env", "--stdin", "--set-home"],
        ..wrapper("sudo", "AbEHiknPSs", "CDghpRrtTUu")
    },
    wrapper("doas", "nsL", "uC"),
    runner("pkexec"),
    runner("run0"),
    Wrapper { positional: 1, ..runner("gosu") },
    Wrapper { positional: 1, ..runner("su-exec") },
    Wrapper { positional: 1, ..runner("setuidgid") },
    Wrapper {
        adds_arguments: true,
        idle_alone: true,
        long_valued: &[
            "--max-args",
            "--max-procs",
            "--delimiter",
            "--arg-file",
            "--max-chars",
            "--process-slot-var",
        ],
        // Some may have a value, but only behind `=`.
        long_flags: &[
            "--null",
            "--no-run-if-empty",
            "--verbose",
            "--interactive",
            "--exit",
            "--eof",
            "--max-lines",
            "--replace",
        ],
        ..wrapper("xargs", "0rtpx", "nPILdasE")
    },
    Wrapper { adds_arguments: true, ..scripts("parallel", "k", "jN") },
    wrapper("nohup", "", ""),
    Wrapper { long_flags: &["--fork", "--wait", "--ctty"], ..wrapper("setsid", "cfw", "") },
    Wrapper { idle_alone: true, long_valued: &["--adjustment"], ..wrapper("nice", "", "n") },
    wrapper("ionice", "t", "cn"),
    Wrapper { positional: 1, ..wrapper("taskset", "ac", "") },
    Wrapper { positional: 1, ..wrapper("chrt", "abfior", "") },
    Wrapper { long_valued: &["--input", "--output", "--error"], ..wrapper("stdbuf", "", "ioe") },
    Wrapper {
        positional: 1,
        long_valued: &["--signal", "--kill-after"],
        long_flags: &["--preserve-status", "--foreground", "--verbose"],
        ..wrapper("timeout", "v", "sk")
    },
    Wrapper { idle_alone: true, ..wrapper("time", "pv", "fo") },
    Wrapper { idle_alone: true, looks_up: Some(['v', 'V']), ..wrapper("command", "p", "") },
    Wrapper { idle_alone: true, ..wrapper("builtin", "", "") },
    Wrapper { idle_alone: true, ..wrapper("exec", "cl", "a") },
    wrapper("coproc", "", ""),
    wrapper("busybox", "", ""),
    wrapper("toybox", "", ""),
    Wrapper { positional: 1, ..wrapper("chroot", "", "") },
    Wrapper { positional: 1, ..wrapper("flock", "sxunoFe", "wE") },
    // With `-o` it may run a command.
    wrapper("strace", "fqtv", "ep"),
    runner("ltrace"),
    runner("valgrind"),
    behind("jobs", "-x"),
    behind("perf", "stat"),
    behind("perf", "record"),
    runner("rlwrap"),
    runner("unbuffer"),
    runner("fakeroot"),
    Wrapper { positional: 1, ..runner("faketime") },
    runner("unshare"),
    runner("nsenter"),
    runner("bwrap"),
    runner("firejail"),
    runner("proot"),
    opaque("systemd-run"),
    runner("systemd-inhibit"),
    runner("setpriv"),
    runner("capsh"),
    runner("prlimit"),
    runner("numactl"),
    runner("cpulimit"),
    runner("cgexec"),
    runner("setarch"),
    runner("linux32"),
    runner("linux64"),
    runner("torsocks"),
    runner("torify"),
    wrapper("proxychains", "q", "f"),
    wrapper("proxychains4", "q", "f"),
    runner("dbus-run-session"),
    runner("xvfb-run"),
    runner("ssh-agent"),
    opaque("sshpass"),
    opaque("start-stop-daemon"),
    runner("daemonize"),
    runner("tini"),
    runner("dumb-init"),
    runner("chronic"),
    runner("ifne"),
    opaque("script"),
    opaque("su"),
    opaque("runuser"),
    opaque("sg"),
    wrapper("caffeinate", "dimsu", "tw"),
    scripts("watch", "bcdegtx", "n"),
    Wrapper { positional: 1, ..scripts("ssh", "46AaCfGgKkMNnqsTtVvXxYy", "BbcDEeFIiJLlmOopQRSWw") },
    scripts("hyperfine", "", ""),
    scripts("concurrently", "", ""),
    scripts("entr", "", ""),
    scripts("watchexec", "", ""),
    scripts("nodemon", "", ""),
    scripts("tmux", "", ""),
    scripts("screen", "", ""),
    scripts("xterm", "", ""),
    scripts("nix-shell", "", ""),
    scripts("vagrant", "", ""),
    Wrapper { long_flags: &["--yes", "--no-install"], ..wrapper("npx", "y", "") },
    runner("bunx"),
    runner("pnpx"),
    runner("uvx"),
    behind("npm", "exec"),
    behind("npm", "x"),
    behind("pnpm", "exec"),
    behind("pnpm", "dlx"),
    behind("yarn", "exec"),
    behind("yarn", "dlx"),
    behind("bun", "x"),
    behind("bundle", "exec"),
    behind("poetry", "run"),
    behind("pipenv", "run"),
    behind("pdm", "run"),
    behind("hatch", "run"),
    behind("uv", "run"),
    behind("pipx", "run"),
    behind("conda", "run"),
    behind("mamba", "run"),
    behind("opam", "exec"),
    behind("stack", "exec"),
    behind("cabal", "exec"),
    behind("composer", "exec"),
    behind("mise", "exec"),
    behind("mise", "x"),
    behind("rbenv", "exec"),
    behind("pyenv", "exec"),
    behind("asdf", "exec"),
    behind("op", "run"),
    behind("aws-vault", "exec"),
    behind_one("direnv", "exec"),
    behind_one("rustup", "run"),
    behind("nix", "develop"),
    behind("nix", "shell"),
    behind("nix", "run"),
    behind_one("docker", "exec"),
    behind_one("docker", "run"),
    behind_one("podman", "exec"),
    behind_one("podman", "run"),
    behind_one("kubectl", "exec"),
    behind_one("kubectl", "run"),
    behind_one("lxc", "exec"),
    behind_one("ip", "exec"),
    behind("cmake", "-E"),
    behind("gdb", "--args"),
    behind("lldb", "--"),
];
