//! Least squares on the logarithms of measured over predicted, with each factor drawn towards 1.

use crate::time::constants::table;
use crate::time::{PARTS, Setup};

/// Number of factors.
const COUNT: usize = PARTS.len();
/// Standard deviation of the logarithm that one measured step is taken to have.
const NOISE: f64 = 0.05;
/// Rounds of the fit; each halves its step until the sum of squares falls.
const ROUNDS: usize = 60;
/// Where no measured step stands behind the constants, a factor may be as many times wider.
const ASSUMED: f64 = 5.0;
/// Largest logarithm of a factor: five orders of magnitude.
const MOST: f64 = 12.0;

/// A measured step and what it is predicted from.
pub(super) struct Case {
    pub(super) setup: Setup,
    pub(super) seconds: f64,
    /// Whether the constants for this device are a guess.
    pub(super) assumed: bool,
}

impl Case {
    /// Seconds under these factors.
    pub(super) fn predict(&self, factors: &[f64; COUNT]) -> f64 {
        let mut setup = self.setup.clone();
        setup.multiply(factors);
        setup.predict(&table().values()).total()
    }

    /// Ranks.
    pub(super) fn ranks(&self) -> u64 {
        (self.setup.data.dense.size * self.setup.split.tp * self.setup.pipe.stages).round() as u64
    }
}

/// The factors of [`PARTS`] that suit the cases best.
pub(super) fn fit(cases: &[&Case]) -> [f64; COUNT] {
    let assumed = cases.iter().any(|case| case.assumed);
    let widths = PARTS.map(|part| if assumed { ASSUMED * part.width } else { part.width });
    let mut logs = [0.0; COUNT];
    let mut damping = 1e-3;
    let mut best = cost(cases, &logs, &widths);
    for _ in 0..ROUNDS {
        let (matrix, right) = normal_equations(cases, &logs, &widths);
        let mut tried = matrix;
        for (at, row) in tried.iter_mut().enumerate() {
            row[at] *= 1.0 + damping;
        }
        let Some(step) = solve(tried, right) else { break };
        let mut next = logs;
        for (log, step) in next.iter_mut().zip(step) {
            *log = (*log + step).clamp(-MOST, MOST);
        }
        let cost = cost(cases, &next, &widths);
        if cost < best {
            let gained = best - cost;
            (logs, best) = (next, cost);
            damping = (damping / 4.0).max(1e-9);
            if gained < 1e-10 * best {
                break;
            }
        } else {
            damping *= 8.0;
            if damping > 1e9 {
                break;
            }
        }
    }
    logs.map(libm::exp)
}

fn residual(case: &Case, logs: &[f64; COUNT]) -> f64 {
    let predicted = case.predict(&logs.map(libm::exp));
    libm::log((predicted / case.seconds).clamp(1e-30, 1e30)) / NOISE
}

fn cost(cases: &[&Case], logs: &[f64; COUNT], widths: &[f64; COUNT]) -> f64 {
    let fit: f64 = cases.iter().map(|case| residual(case, logs)).map(|one| one * one).sum();
    let prior: f64 = logs.iter().zip(widths).map(|(log, width)| (log / width) * (log / width)).sum();
    fit + prior
}

type Matrix = [[f64; COUNT]; COUNT];

/// Of the sum of squares around `logs`, by differences.
fn normal_equations(cases: &[&Case], logs: &[f64; COUNT], widths: &[f64; COUNT]) -> (Matrix, [f64; COUNT]) {
    const DIFFERENCE: f64 = 1e-4;
    let (mut matrix, mut right) = ([[0.0; COUNT]; COUNT], [0.0; COUNT]);
    for case in cases {
        let here = residual(case, logs);
        let mut slope = [0.0; COUNT];
        for (at, slope) in slope.iter_mut().enumerate() {
            let mut moved = *logs;
            moved[at] += DIFFERENCE;
            *slope = (residual(case, &moved) - here) / DIFFERENCE;
        }
        for (row, (own, right)) in matrix.iter_mut().zip(slope.iter().zip(&mut right)) {
            for (cell, other) in row.iter_mut().zip(&slope) {
                *cell += own * other;
            }
            *right -= own * here;
        }
    }
    for (at, row) in matrix.iter_mut().enumerate() {
        row[at] += 1.0 / (widths[at] * widths[at]);
        right[at] -= logs[at] / (widths[at] * widths[at]);
    }
    (matrix, right)
}

/// Gauss's elimination with pivots; none for a singular matrix.
fn solve(mut matrix: Matrix, mut right: [f64; COUNT]) -> Option<[f64; COUNT]> {
    for column in 0..COUNT {
        let pivot =
            (column..COUNT).max_by(|&a, &b| matrix[a][column].abs().total_cmp(&matrix[b][column].abs()))?;
        matrix.swap(column, pivot);
        right.swap(column, pivot);
        let (row, value) = (matrix[column], right[column]);
        if row[column].is_nan() || row[column].abs() <= 1e-300 {
            return None;
        }
        for below in column + 1..COUNT {
            let share = matrix[below][column] / row[column];
            for (cell, above) in matrix[below].iter_mut().zip(&row) {
                *cell -= share * above;
            }
            right[below] -= share * value;
        }
    }
    for column in (0..COUNT).rev() {
        let known: f64 = (column + 1..COUNT).map(|at| matrix[column][at] * right[at]).sum();
        right[column] = (right[column] - known) / matrix[column][column];
    }
    right.iter().all(|value| value.is_finite()).then_some(right)
}
