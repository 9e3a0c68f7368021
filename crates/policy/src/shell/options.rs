//! Programs that run commands which an option names, or which cannot be told from their arguments.

use super::words::Word;

/// Options with which a program runs a command, or reads settings that may name one.
struct Runs {
    names: &'static [&'static str],
    /// One-letter options, alone or among others.
    short: &'static str,
    /// Long options. Programs understand the beginning of a long option as well.
    long: &'static [&'static str],
    /// Whole words: subcommands, and long options with one dash.
    words: &'static [&'static str],
}

const RUNS: &[Runs] = &[
    Runs {
        names: &["tar", "gtar", "bsdtar"],
        short: "IF",
        long: &[
            "to-command",
            "checkpoint-action",
            "use-compress-program",
            "rsh-command",
            "rmt-command",
            "info-script",
            "new-volume-script",
        ],
        words: &[],
    },
    Runs { names: &["cpio"], short: "", long: &["rsh-command", "rmt-command"], words: &[] },
    Runs { names: &["rsync"], short: "e", long: &["rsh", "rsync-path"], words: &[] },
    Runs { names: &["scp", "sftp"], short: "SoFDJ", long: &[], words: &[] },
    Runs { names: &["zip"], short: "T", long: &["unzip-command"], words: &[] },
    Runs { names: &["sort", "gsort"], short: "", long: &["compress-program"], words: &[] },
    Runs { names: &["split", "gsplit"], short: "", long: &["filter"], words: &[] },
    Runs { names: &["install"], short: "", long: &["strip-program"], words: &[] },
    Runs { names: &["rg"], short: "", long: &["pre", "hostname-bin"], words: &[] },
    Runs { names: &["ag", "ack", "bat"], short: "", long: &["pager"], words: &[] },
    Runs { names: &["man"], short: "PH", long: &["pager", "html"], words: &[] },
    Runs { names: &["curl"], short: "K", long: &["config", "engine"], words: &[] },
    Runs {
        names: &["wget"],
        short: "ei",
        long: &["execute", "config", "use-askpass", "input-file"],
        words: &[],
    },
    Runs { names: &["tcpdump"], short: "z", long: &[], words: &[] },
    Runs { names: &["nmap"], short: "", long: &["script"], words: &[] },
    Runs {
        names: &["nc", "ncat", "netcat"],
        short: "ec",
        long: &["exec", "sh-exec", "lua-exec"],
        words: &[],
    },
    Runs { names: &["cargo"], short: "", long: &["config"], words: &[] },
    Runs {
        names: &["npm", "pnpm", "yarn"],
        short: "",
        long: &["script-shell", "node-options"],
        words: &["config"],
    },
    Runs {
        names: &["go"],
        short: "",
        long: &["exec", "toolexec", "vettool"],
        words: &["-exec", "-toolexec", "-vettool", "generate"],
    },
    Runs {
        names: &["gcc", "g++", "cc", "c++", "clang", "clang++"],
        short: "B",
        long: &[],
        words: &["-wrapper", "-fplugin", "-specs", "-load"],
    },
    Runs { names: &["make", "gmake", "bmake"], short: "E", long: &["eval"], words: &[] },
    Runs { names: &["cmake"], short: "P", long: &[], words: &[] },
    Runs {
        names: &["apt", "apt-get", "aptitude", "dpkg"],
        short: "o",
        long: &["option", "pre-invoke", "post-invoke"],
        words: &[],
    },
    Runs { names: &["rpm", "rpmbuild"], short: "ED", long: &["eval", "define", "pipe"], words: &[] },
    Runs { names: &["hg", "chg", "jj"], short: "", long: &["config"], words: &[] },
    Runs {
        names: &["svn"],
        short: "",
        long: &["diff-cmd", "diff3-cmd", "editor-cmd", "config-option", "config-dir"],
        words: &[],
    },
    Runs { names: &["gh", "glab"], short: "", long: &["shell"], words: &["alias", "extension"] },
    Runs { names: &["helm"], short: "", long: &["post-renderer"], words: &["plugin"] },
    Runs { names: &["kubectl"], short: "", long: &["kubeconfig"], words: &["plugin"] },
    Runs {
        names: &["latex", "pdflatex", "xelatex", "lualatex", "tex", "latexmk"],
        short: "e",
        long: &["shell-escape", "enable-write18"],
        words: &["-shell-escape", "-enable-write18"],
    },
    Runs { names: &["sqlite3"], short: "", long: &["cmd", "init"], words: &["-cmd", "-init"] },
    // The shell evaluates the subscript of a name that it writes to.
    Runs { names: &["printf"], short: "v", long: &[], words: &[] },
    Runs { names: &["wait"], short: "p", long: &[], words: &[] },
    Runs {
        names: &["systemctl"],
        short: "",
        long: &[],
        words: &["edit", "set-environment", "import-environment"],
    },
];

/// Programs that run what is typed into them, or what settings say that cannot be told.
const ANYTHING: &[&str] = &[
    "ansible",
    "at",
    "batch",
    "compgen",
    "crontab",
    "dc",
    "ed",
    "emacs",
    "emacsclient",
    "ex",
    "mail",
    "mg",
    "mutt",
    "nano",
    "nvim",
    "red",
    "rview",
    "rvim",
    "socat",
    "sudoedit",
    "vi",
    "view",
    "vim",
    "vimdiff",
];

/// Whether make may take what it reads for its makefile: an input has several names, and options may be joined with it.
fn reads_makefile(arguments: &[Word]) -> bool {
    arguments.iter().any(|word| {
        let text = word.text.as_str();
        text.ends_with('-') || text.contains("/dev/") || text.contains("/proc/")
    })
}

/// Subcommands of git that run commands, or change what others of them run.
const GIT_RUNNING: &[&str] = &[
    "bisect",
    "config",
    "credential",
    "daemon",
    "difftool",
    "filter-branch",
    "filter-repo",
    "hook",
    "instaweb",
    "mergetool",
    "send-email",
    "submodule",
    "upload-archive",
    "web--browse",
];

/// Options of git with which it runs a command. Their beginnings are understood as well.
const GIT_OPTIONS: &[&str] = &[
    "config",
    "exec",
    "ext-diff",
    "extcmd",
    "open-files-in-pager",
    "receive-pack",
    "template",
    "textconv",
    "tool",
    "upload-archive",
    "upload-pack",
];

/// Why the command of `words` may run commands that it does not name; `None` where it does not.
pub(super) fn doubt(name: &str, words: &[Word]) -> Option<&'static str> {
    if ANYTHING.contains(&name) {
        return Some("it runs commands that it is given");
    }
    let arguments = words.get(1..).unwrap_or_default();
    let any = |test: &dyn Fn(&str) -> bool| arguments.iter().any(|word| test(&word.text));
    let by_language = match name {
        "git" => runs_by_git(arguments),
        "sed" | "gsed" => super::sed::is_doubtful(words),
        "awk" | "gawk" | "mawk" | "nawk" => super::awk::is_doubtful(words),
        "less" | "more" | "most" => any(&|text| text.starts_with('+')),
        "psql" | "mysql" | "mariadb" => any(&|text| text.contains('\\') || text.contains("system")),
        "sqlite3" => any(&|text| text.trim_start().starts_with('.')),
        "make" | "gmake" | "bmake" => any(&|text| text.contains('$')) || reads_makefile(arguments),
        // The shell evaluates the subscript of a name that is asked for.
        "test" | "[" => any(&|text| matches!(text, "-v" | "-R")) && any(&|text| text.contains('[')),
        _ => false,
    };
    // Files that are called so are commands for some programs.
    let is_pipe = any(&|text| text.starts_with('|'));
    let runs = RUNS.iter().find(|runs| runs.names.contains(&name));
    let by_option = runs.is_some_and(|runs| any(&|text| runs.names_command(text)));
    (by_language || is_pipe || by_option).then_some("an option that runs a command")
}

impl Runs {
    fn names_command(&self, text: &str) -> bool {
        let name = text.split_once('=').map_or(text, |(name, _)| name);
        if self.words.contains(&name) {
            return true;
        }
        match text.strip_prefix('-') {
            Some(option) if option.starts_with('-') => begins_one_of(name, self.long),
            Some(letters) => letters.contains(|letter| self.short.contains(letter)),
            None => false,
        }
    }
}

/// Whether `name`, with its dashes, is the beginning of one of these long options.
fn begins_one_of(name: &str, options: &[&str]) -> bool {
    let typed = name.trim_start_matches('-');
    typed.len() > 1 && options.iter().any(|option| option.starts_with(typed))
}

fn runs_by_git(arguments: &[Word]) -> bool {
    let mut at = 0;
    while let Some(word) = arguments.get(at) {
        match word.text.as_str() {
            "-C" | "--namespace" => at += 1,
            "--no-pager"
            | "-P"
            | "--no-optional-locks"
            | "--literal-pathspecs"
            | "--bare"
            | "--version"
            | "--help" => {}
            // Settings, another directory of programs, another repository with its own settings.
            text if text.starts_with('-') => return true,
            _ => break,
        }
        at += 1;
    }
    let Some(subcommand) = arguments.get(at).map(|word| word.text.as_str()) else { return false };
    let short = match subcommand {
        "rebase" => "x",
        "grep" => "O",
        "clone" => "uc",
        "ls-remote" | "fetch-pack" | "send-pack" => "u",
        _ => "",
    };
    let runs = |word: &Word| {
        let text = word.text.as_str();
        let name = text.split_once('=').map_or(text, |(name, _)| name);
        match text.strip_prefix('-') {
            Some(option) if option.starts_with('-') => begins_one_of(name, GIT_OPTIONS),
            Some(letters) => letters.contains(|letter| short.contains(letter)),
            // `ext::sh -c …` is an address for git.
            None => text.contains("::"),
        }
    };
    GIT_RUNNING.contains(&subcommand) || arguments[at + 1..].iter().any(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_doubtful(script: &str) -> bool {
        let words: Vec<Word> = script.split(' ').map(Word::plain).collect();
        doubt(&words[0].text, &words).is_some()
    }

    #[test]
    fn options_that_run_commands_are_told_from_others() {
        for script in [
            "tar xf a.tar --to-command=rm",
            "tar xf a.tar --to-c rm",
            "tar cf a.tar --checkpoint=1 --checkpoint-action=exec=rm .",
            "tar -I rm -xf a.tar",
            "rsync -avze rm a b",
            "rg --pre rm x",
            "sort --compress-prog=rm x",
            "go test -exec rm .",
            "git -c core.pager=rm log",
            "git --exec-path=. log",
            "git config core.pager rm",
            "git rebase -x rm main",
            "git rebase --exec=rm main",
            "git clone --upload-pack=rm a",
            "git clone -u rm a",
            "git grep -Orm x",
            "git fetch ext::rm",
            "git --git-dir=x log",
            "git bisect run rm",
            "vim -c :!rm",
            "make --eval=x",
            "gcc -wrapper rm x.c",
            "sqlite3 a.db .shell",
            "open |rm",
        ] {
            assert!(is_doubtful(script), "{script}");
        }
        for script in [
            "tar czf a.tgz src",
            "tar -xf a.tar --strip-components=1",
            "rsync --archive a b",
            "rg -n pretty src",
            "sort -u x",
            "go test ./...",
            "git commit -m x",
            "git push -u origin main",
            "git -C sub status --short",
            "git log --oneline -n 5",
            "git checkout -b x",
            "git clean -fdx",
            "cargo test --release",
            "make -j4 test",
        ] {
            assert!(!is_doubtful(script), "{script}");
        }
    }
}
