//! Seconds by what they are spent on.

/// Seconds of a GPU on one piece of work.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Parts {
    /// Matrix products.
    pub gemm: f64,
    /// Attention and scans.
    pub attention: f64,
    /// What memory bandwidth bounds: norms, activations, routing, loss.
    pub memory: f64,
    /// Exposed tensor-parallel communication.
    pub tp: f64,
    /// Exposed context-parallel communication.
    pub cp: f64,
    /// Exposed expert-parallel communication.
    pub ep: f64,
}

impl Parts {
    /// All of it.
    pub fn total(&self) -> f64 {
        self.gemm + self.attention + self.memory + self.tp + self.cp + self.ep
    }

    /// `times` of it.
    #[must_use]
    pub fn times(&self, times: f64) -> Parts {
        Parts {
            gemm: times * self.gemm,
            attention: times * self.attention,
            memory: times * self.memory,
            tp: times * self.tp,
            cp: times * self.cp,
            ep: times * self.ep,
        }
    }
}

impl std::ops::AddAssign for Parts {
    fn add_assign(&mut self, other: Parts) {
        self.gemm += other.gemm;
        self.attention += other.attention;
        self.memory += other.memory;
        self.tp += other.tp;
        self.cp += other.cp;
        self.ep += other.ep;
    }
}

impl std::ops::Add for Parts {
    type Output = Parts;
    fn add(mut self, other: Parts) -> Parts {
        self += other;
        self
    }
}

/// Forward and backward of one micro batch through a part of a model.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Both {
    /// Forward.
    pub forward: Parts,
    /// Backward, without what is computed again.
    pub backward: Parts,
    /// Of the backward, gradients of weights.
    pub weights: f64,
}

impl std::ops::AddAssign for Both {
    fn add_assign(&mut self, other: Both) {
        self.forward += other.forward;
        self.backward += other.backward;
        self.weights += other.weights;
    }
}
