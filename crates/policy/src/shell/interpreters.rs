//! Programs that run code: from an argument, from a file, or from what they read.

use super::words::Word;
use super::wrappers::is_input;

/// How the arguments of an interpreter say where its code is.
struct Interpreter {
    names: &'static [&'static str],
    /// One-letter options whose value is code.
    code: &'static str,
    /// Long options, and words, whose value is code.
    code_long: &'static [&'static str],
    /// One-letter options with a value, attached or in the next word.
    valued: &'static str,
    /// Long options with a value in the next word.
    long_valued: &'static [&'static str],
    /// The one-letter option that names a module instead of a file.
    module: Option<char>,
}

const INTERPRETERS: &[Interpreter] = &[
    Interpreter {
        names: &[
            "python",
            "python2",
            "python3",
            "pypy",
            "pypy3",
            "ipython",
            "bpython",
            "jython",
            "micropython",
        ],
        code: "c",
        code_long: &[],
        valued: "WX",
        long_valued: &["--check-hash-based-pycs"],
        module: Some('m'),
    },
    Interpreter {
        names: &["node", "nodejs", "bun", "tsx", "ts-node", "deno", "qjs", "d8"],
        code: "ep",
        code_long: &["--eval", "--print", "eval", "repl", "--import", "--loader", "--experimental-loader"],
        valued: "rCS",
        long_valued: &["--require", "--env-file", "--conditions", "--title", "--config"],
        module: None,
    },
    Interpreter {
        names: &["perl", "raku"],
        code: "eE",
        code_long: &[],
        valued: "I",
        long_valued: &[],
        module: None,
    },
    Interpreter {
        names: &["ruby", "jruby", "irb"],
        code: "e",
        code_long: &[],
        valued: "rICEFTx",
        long_valued: &["--encoding"],
        module: None,
    },
    Interpreter {
        names: &["php"],
        code: "rBRE",
        code_long: &["--run", "--process-begin", "--process-code", "--process-end"],
        valued: "cdzSt",
        long_valued: &["--define", "--php-ini"],
        module: None,
    },
    Interpreter {
        names: &[
            "lua",
            "luajit",
            "luau",
            "rscript",
            "Rscript",
            "R",
            "julia",
            "groovy",
            "scala",
            "elixir",
            "iex",
            "erl",
            "swift",
            "ocaml",
            "jshell",
            "octave",
            "guile",
            "racket",
            "sbcl",
            "clisp",
            "clojure",
            "clj",
            "bb",
            "gs",
            "gnuplot",
            "osascript",
            "pwsh",
            "powershell",
            "tclsh",
            "wish",
            "expect",
            "m4",
            "maxima",
            "gp",
            "gdb",
            "lldb",
            "crystal",
            "nim",
            "kotlin",
            "kotlinc",
            "dart",
            "ghci",
            "bpftrace",
            "runghc",
        ],
        code: "eEcqpxo",
        code_long: &[
            "--eval",
            "--print",
            "--expression",
            "--load",
            "-eval",
            "-ex",
            "-exec",
            "-Command",
            "eval",
        ],
        valued: "l",
        long_valued: &[],
        module: None,
    },
];

/// Modules that run code which is an argument of theirs.
const RUNNING_MODULES: &[&str] = &["timeit", "code", "pdb", "trace"];

/// Where an interpreter has its code from.
pub(super) enum Code<'a> {
    /// From a file.
    File(&'a Word),
    /// From where it cannot be told what it does.
    Doubtful(&'static str),
    /// It runs none, or a module that is installed.
    None,
}

const GIVEN: &str = "code in an argument";
const READ: &str = "it runs what it reads";

/// Where the command of `words` has its code from; `None` where it is no interpreter.
pub(super) fn code<'a>(name: &str, words: &'a [Word]) -> Option<Code<'a>> {
    let find = |name: &str| INTERPRETERS.iter().find(|interpreter| interpreter.names.contains(&name));
    // `python3.12`
    let plain =
        name.trim_end_matches(|character: char| character.is_ascii_digit() || matches!(character, '.' | '-'));
    let interpreter = find(name).or_else(|| find(plain))?;
    Some(interpreter.code(words))
}

impl Interpreter {
    fn code<'a>(&self, words: &'a [Word]) -> Code<'a> {
        let mut at = 1;
        while let Some(word) = words.get(at) {
            let text = word.text.as_str();
            let name = text.split_once('=').map_or(text, |(name, _)| name);
            if self.code_long.contains(&name) {
                return Code::Doubtful(GIVEN);
            }
            match text.strip_prefix('-') {
                None if word.doubt.is_some() || is_input(text) => return Code::Doubtful(READ),
                None => return Code::File(word),
                Some("") => return Code::Doubtful(READ),
                Some("-") => {
                    let file = words.get(at + 1).filter(|word| !is_input(&word.text));
                    return file.map_or(Code::Doubtful(READ), Code::File);
                }
                Some(option) if option.starts_with('-') => {
                    at += usize::from(self.long_valued.contains(&text));
                }
                Some(letters) => match self.letters(letters, words.get(at + 1)) {
                    Ok(more) => at += more,
                    Err(code) => return code,
                },
            }
            at += 1;
        }
        let only_tells =
            |word: &Word| matches!(word.text.as_str(), "--version" | "-V" | "-v" | "--help" | "-h");
        let tells = words.len() > 1 && words[1..].iter().all(only_tells);
        if tells { Code::None } else { Code::Doubtful(READ) }
    }

    /// Reads one-letter options: how many words after them are their values, or where the code is.
    fn letters<'a>(&self, letters: &str, next: Option<&Word>) -> Result<usize, Code<'a>> {
        for (index, letter) in letters.char_indices() {
            let is_last = index + letter.len_utf8() == letters.len();
            if self.module == Some(letter) {
                let module = next.map_or("", |word| word.text.as_str());
                let runs = RUNNING_MODULES.contains(&module) || !is_last;
                return Err(if runs { Code::Doubtful(GIVEN) } else { Code::None });
            }
            if self.code.contains(letter) {
                return Err(Code::Doubtful(GIVEN));
            }
            if self.valued.contains(letter) {
                return Ok(usize::from(is_last));
            }
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_doubtful(script: &str) -> bool {
        let words: Vec<Word> = script.split(' ').map(Word::plain).collect();
        matches!(code(&words[0].text, &words), Some(Code::Doubtful(_)))
    }

    #[test]
    fn code_in_arguments_and_in_input_is_told_from_files() {
        for script in [
            "python -c x",
            "python3.12 -Bc x",
            "python -W ignore -c x",
            "python",
            "python -",
            "python -u /dev/stdin",
            "python -m timeit x",
            "node -e x",
            "node --eval=x",
            "node -r a -p x",
            "node --import data:x a.js",
            "deno eval x",
            "perl -I lib -e x",
            "perl -lane x",
            "perl -i -pe x f",
            "ruby -rset -e x",
            "php -r x",
            "php -d a=b -r x",
            "lua -e x",
            "gdb -ex x",
            "python --",
        ] {
            assert!(is_doubtful(script), "{script}");
        }
        for script in [
            "python x.py -c y",
            "python -u x.py",
            "python -m pytest -c x",
            "python --version",
            "node x.js -p 3000",
            "node --test x.js",
            "perl x.pl -e",
            "ruby -w x.rb",
            "php -S x.php y",
            "php x.php",
        ] {
            assert!(!is_doubtful(script), "{script}");
        }
    }
}
