//! Checks that language servers and formatters have in common.

/// The longest name, in bytes.
const LONGEST_NAME: usize = 64;

/// The words of a command: a program and its arguments.
///
/// # Errors
/// The program is missing, or a path that is not absolute.
pub(super) fn command(words: &[String]) -> Result<Vec<String>, String> {
    let program = words.first().filter(|program| !program.trim().is_empty());
    let program = program.ok_or_else(|| "no program is named".to_owned())?;
    if program.contains('/') && !program.starts_with('/') {
        let program = program.escape_debug();
        return Err(format!("\"{program}\" is neither the name of a program nor an absolute path"));
    }
    Ok(words.to_vec())
}

/// Ends of names of files, each with its dot.
///
/// # Errors
/// There is none, or one is not written as `.sh`.
pub(super) fn extensions(extensions: &[String]) -> Result<Vec<String>, String> {
    if extensions.is_empty() {
        return Err("no extension is named".to_owned());
    }
    let is_one = |text: &&String| text.len() > 1 && text.starts_with('.') && !text.contains(['/', '*', '?']);
    if let Some(wrong) = extensions.iter().find(|text| !is_one(text)) {
        let wrong = wrong.escape_debug();
        return Err(format!("\"{wrong}\" is not how the name of a file ends: write it as \".sh\""));
    }
    Ok(extensions.to_vec())
}

/// Checks the name that the operator gave to `what`.
///
/// # Errors
/// It is empty, too long, or has other characters than those that the error lists.
pub(super) fn check_name(name: &str, what: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > LONGEST_NAME || !name.chars().all(fits) {
        return Err(format!(
            "\"{}\" cannot be the name of {what}: 1 to {LONGEST_NAME} letters, digits, `-`, `_` and `.`",
            name.escape_debug()
        ));
    }
    Ok(())
}
