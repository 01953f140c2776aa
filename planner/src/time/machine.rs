//! What a rank can do: a GPU's data sheet, its links and the constants of its software, put together.

use super::constants::{Chosen, ConstantRole, ROLES};
use crate::cluster::Speeds;

/// Number formats of GEMMs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Numbers {
    /// fp64 or fp32, at a part of the bf16 peak.
    Quantity,
    /// bf16 or fp16.
    Bf16,
    /// fp8 with scales per tensor.
    Fp8,
    /// fp8 with scales per row or tile.
    Fp8Rows,
    /// fp8 with scales per block of 32.
    Mxfp8,
    /// fp4 with scales per block of 16.
    Nvfp4,
}

impl Numbers {
    /// Bytes of an element of a GEMM's inputs, with scales.
    const fn input_bytes(self) -> f64 {
        match self {
            Numbers::Quantity => 4.0,
            Numbers::Bf16 => 2.0,
            Numbers::Fp8 => 1.0,
            Numbers::Fp8Rows | Numbers::Mxfp8 => 1.03,
            Numbers::Nvfp4 => 0.56,
        }
    }

    /// What GEMMs of it sustain of its peak.
    pub(super) const fn role(self) -> ConstantRole {
        match self {
            Numbers::Quantity | Numbers::Bf16 => ConstantRole::GemmBf16,
            Numbers::Fp8 => ConstantRole::GemmFp8,
            Numbers::Fp8Rows => ConstantRole::GemmFp8Rows,
            Numbers::Mxfp8 => ConstantRole::GemmMxfp8,
            Numbers::Nvfp4 => ConstantRole::GemmFp4,
        }
    }

    /// Elements of the inner dimension cost less time at a higher rate, so filling costs more of them.
    const fn fill(self) -> f64 {
        match self {
            Numbers::Quantity | Numbers::Bf16 => 1.0,
            Numbers::Fp8 | Numbers::Mxfp8 => 2.0,
            Numbers::Fp8Rows | Numbers::Nvfp4 => 3.0,
        }
    }

    /// Bytes read and written to quantize an element, both directions of it.
    const fn quantize_bytes(self) -> f64 {
        match self {
            Numbers::Quantity | Numbers::Bf16 => 0.0,
            Numbers::Fp8 | Numbers::Mxfp8 => 5.0,
            Numbers::Fp8Rows | Numbers::Nvfp4 => 6.0,
        }
    }
}

/// Figures of a GPU and its links, without constants.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hardware {
    /// Data sheet.
    pub speeds: Speeds,
    /// Streaming multiprocessors.
    pub multiprocessors: f64,
    /// Side of an output tile, elements.
    pub tile: f64,
    /// Peak of fp32 and wider over bf16's.
    pub wide_share: f64,
    /// GPUs joined by NVLink.
    pub domain: f64,
    /// Network bytes/s of a GPU.
    pub nic: f64,
    /// What multiplies the constant of each role: a calibration's factors.
    pub factors: [f64; ROLES],
}

/// GEMMs of one number format.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GemmRate {
    /// FLOP/s.
    pub flops: f64,
    /// Elements of the inner dimension lost.
    pub fill: f64,
    /// Output elements of an unfilled wave.
    pub wave: f64,
    /// Bytes of an input element.
    pub input_bytes: f64,
    /// Bytes that quantizing an input element moves.
    pub quantize_bytes: f64,
}

/// Everything that formulas read. All rates are per second and effective.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Machine {
    /// GEMMs of the layers.
    pub gemm: GemmRate,
    /// GEMMs that stay in bf16.
    pub gemm16: GemmRate,
    /// Side of an output tile.
    pub tile: f64,
    /// Memory bytes.
    pub memory: f64,
    /// FLOP/s of the bf16 peak at the clock under load.
    pub peak: f64,
    /// GPUs of an NVLink domain.
    pub domain: f64,
    /// Bytes in a domain, one direction.
    pub nvlink: f64,
    /// Bytes of a GPU's network.
    pub nic: f64,
    /// Whether one thread launches and computes.
    pub same_thread: bool,
    /// Constants by role.
    values: [f64; ROLES],
}

impl Machine {
    /// `values` are the table's, in its order; `chosen` says which of them hold here.
    pub fn new(hardware: &Hardware, numbers: Numbers, chosen: &Chosen, values: &[f64]) -> Machine {
        let mut roles = [0.0; ROLES];
        for ((slot, &at), factor) in roles.iter_mut().zip(chosen).zip(hardware.factors) {
            *slot = values.get(usize::from(at)).copied().unwrap_or(1.0) * factor;
        }
        let of = |role: ConstantRole| roles.get(role as usize).copied().unwrap_or(1.0);
        let (speeds, clock) = (hardware.speeds, of(ConstantRole::Clock));
        let bf16 = speeds.bf16_tflops * 1e12;
        // Where a format has no peak of its own, it runs at bf16's.
        let fp8 = speeds.fp8_tflops.map_or(bf16, |peak| peak * 1e12);
        let share = of(numbers.role());
        let peak = match numbers {
            Numbers::Quantity => bf16 * hardware.wide_share,
            Numbers::Bf16 => bf16,
            Numbers::Fp8 | Numbers::Fp8Rows | Numbers::Mxfp8 => fp8,
            Numbers::Nvfp4 => speeds.fp4_tflops.map_or(fp8, |peak| peak * 1e12),
        };
        let rate = |numbers: Numbers, flops: f64| GemmRate {
            flops: flops * clock,
            fill: of(ConstantRole::DepthFill) * numbers.fill(),
            wave: of(ConstantRole::WaveFill) * hardware.multiprocessors * 128.0 * 128.0,
            input_bytes: numbers.input_bytes(),
            quantize_bytes: numbers.quantize_bytes() * of(ConstantRole::QuantizeTraffic),
        };
        let sixteen = if numbers == Numbers::Quantity { numbers } else { Numbers::Bf16 };
        let sixteen_peak = if numbers == Numbers::Quantity { bf16 * hardware.wide_share } else { bf16 };
        Machine {
            gemm: rate(numbers, peak * share),
            gemm16: rate(sixteen, sixteen_peak * of(ConstantRole::GemmBf16)),
            tile: hardware.tile,
            memory: speeds.memory_gbs * 1e9 * of(ConstantRole::MemoryShare),
            peak: bf16 * clock,
            domain: hardware.domain,
            // Data sheets print both directions together. Without NVLink, PCIe 4.0 x16 carries the node.
            nvlink: speeds.nvlink_gbs.unwrap_or(64.0) / 2.0 * 1e9 * of(ConstantRole::NvlinkShare),
            nic: hardware.nic * of(ConstantRole::NicShare),
            same_thread: of(ConstantRole::SameThread) > 0.0,
            values: roles,
        }
    }

    /// The same, with no communication beside computing but what FSDP gathers ahead.
    pub(super) fn hiding_nothing(&self) -> Machine {
        use ConstantRole::{DpWindow, ExposedCp, ExposedEp, ExposedTp};
        let shares = [(ExposedTp, 1.0), (ExposedEp, 1.0), (ExposedCp, 1.0), (DpWindow, 0.0)];
        let mut machine = *self;
        for (role, share) in shares {
            if let Some(value) = machine.values.get_mut(role as usize) {
                *value = share;
            }
        }
        machine
    }

    /// The constant of a role.
    pub fn of(&self, role: ConstantRole) -> f64 {
        self.values.get(role as usize).copied().unwrap_or(1.0)
    }
}

/// The smooth maximum of two things that overlap, but not perfectly.
pub(super) fn overlap(one: f64, other: f64) -> f64 {
    let (one, other) = (one * one, other * other);
    (one * one + other * other).sqrt().sqrt()
}
