//! How the native tools work, as an operator configures it.

use std::path::PathBuf;

use crate::bash::BashOptions;
use crate::web::WebOptions;

/// How the native tools work. The default is what holds without any configuration.
#[derive(Clone, Debug, Default)]
pub struct NativeOptions {
    /// Commands.
    pub bash: BashOptions,
    /// The tools that reach out.
    pub web: WebOptions,
    /// The operator's folder of skills: absolute, whether it is there or not.
    pub skills: Option<PathBuf>,
}
