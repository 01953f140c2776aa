//! Seconds of matrix products.

use super::machine::{GemmRate, Machine, overlap};

/// A product of `rows` by `inputs` with `inputs` by `outputs`, in `groups` equal parts (experts) over the rows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Product {
    /// Rows of all groups together.
    pub rows: f64,
    /// Columns of the result.
    pub outputs: f64,
    /// Inner dimension.
    pub inputs: f64,
    /// Parts.
    pub groups: f64,
}

/// Rows of a tile that are empty on average where a group ends.
const GROUP_PADDING: f64 = 48.0;

/// A product too small to fill the GPU once is limited by its latency, not by the share of the GPU that it uses.
const MOST_WAVES: f64 = 16.0;

/// Elements of the last tile are computed whether they are needed or not.
fn padded(size: f64, tile: f64) -> f64 {
    (size / tile).ceil() * tile
}

/// One product; `moved` bytes are read and written.
fn seconds(machine: &Machine, rate: &GemmRate, product: Product, padding: f64, moved: f64) -> f64 {
    let Product { rows, outputs, inputs, .. } = product;
    if rows <= 0.0 || outputs <= 0.0 || inputs <= 0.0 {
        return 0.0;
    }
    if machine.same_thread {
        // A CPU's products have no tiles to fill; what they read is laid out anew before they start.
        return 2.0 * rows * outputs * inputs / rate.flops + moved / machine.memory;
    }
    let flops = 2.0 * rows * padded(outputs, machine.tile).min(2.0 * outputs) * inputs;
    let lost = rate.fill / inputs + (rate.wave / (rows * outputs)).min(MOST_WAVES) + padding;
    overlap(flops / rate.flops * (1.0 + lost), moved / machine.memory)
}

/// The product itself, and the bytes to quantize its input.
pub(super) fn forward(machine: &Machine, rate: &GemmRate, product: Product) -> f64 {
    let Product { rows, outputs, inputs, groups } = product;
    let moved = rate.input_bytes * (rows * inputs + outputs * inputs * groups) + 2.0 * rows * outputs;
    let one = Product { groups: 1.0, ..product };
    seconds(machine, rate, one, padding(product), moved)
        + rate.quantize_bytes * rows * inputs / machine.memory
}

/// The gradient of the input.
pub(super) fn input_gradient(machine: &Machine, rate: &GemmRate, product: Product) -> f64 {
    let turned = Product { outputs: product.inputs, inputs: product.outputs, ..product };
    forward(machine, rate, turned)
}

/// The gradient of the weights, added to a buffer of `gradient_bytes` an element.
pub(super) fn weight_gradient(
    machine: &Machine,
    rate: &GemmRate,
    product: Product,
    gradient_bytes: f64,
) -> f64 {
    let Product { rows, outputs, inputs, groups } = product;
    let moved = rate.input_bytes * (rows * outputs + rows * inputs)
        + 2.0 * gradient_bytes * outputs * inputs * groups.max(1.0);
    let deep = Product { rows: outputs, outputs: inputs, inputs: rows / groups.max(1.0), groups };
    // All groups together.
    let all = Product { rows: outputs * groups.max(1.0), ..deep };
    seconds(machine, rate, Product { groups: 1.0, ..all }, 0.0, moved)
}

fn padding(product: Product) -> f64 {
    if product.groups > 1.0 { GROUP_PADDING * product.groups / product.rows.max(1.0) } else { 0.0 }
}
