//! Tests of architectures, their import and their parameters.

mod hybrids;
mod import;
mod mixers;
mod norms;
mod routing;
mod sizes;
mod totals;
mod types;
mod windows;
