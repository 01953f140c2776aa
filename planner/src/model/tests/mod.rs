//! Tests of architectures, their import and their parameters.

mod hybrids;
mod import;
mod sizes;
mod totals;
