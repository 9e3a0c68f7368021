//! How the native tools work, as an operator configures it.

use crate::bash::BashOptions;
use crate::web::WebOptions;

/// How the native tools work. The default is what holds without any configuration.
#[derive(Clone, Debug, Default)]
pub struct NativeOptions {
    /// Commands.
    pub bash: BashOptions,
    /// The tools that reach out.
    pub web: WebOptions,
}
