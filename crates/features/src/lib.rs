//! Nothing but features.
//!
//! Cargo chooses the features of a dependency for what it builds: for the program others than for the tests of one crate. Each
//! choice compiles it, and all that stands on it, once more. This crate names the features that the whole workspace has with
//! its tests; it is a dependency of the program and a development dependency of every other crate, so that there is one choice.
//!
//! It can go when cargo's `resolver.feature-unification = "workspace"` is stable.
