//! Tests of architectures, their import and their parameters.

mod import;
mod totals;
