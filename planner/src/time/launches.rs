//! Seconds of the host to launch a layer's kernels.

use super::attention::fits_softmax;
use super::constants::ConstantRole;
use super::layer::Work;
use super::shape::{KindShape, MlpShape};

impl Work<'_> {
    /// Seconds of the host to launch a layer ahead of the GPU, and of the GPU between its kernels.
    pub(super) fn host(&self, kind: &KindShape) -> [f64; 2] {
        let machine = self.machine;
        let [mut seconds, mut gaps] = [0.0; 2];
        if kind.mixes {
            let layer = machine.of(ConstantRole::HostLayer);
            let further = machine.of(ConstantRole::HostTp) + machine.of(ConstantRole::HostStalled);
            seconds += layer + further * (self.split.tp - 1.0);
            if self.options.unfused && kind.core.is_some_and(|core| !fits_softmax(self.split, &core)) {
                seconds += machine.of(ConstantRole::HostSoftmax);
            }
            gaps += machine.of(ConstantRole::KernelGap) * layer;
        }
        if let MlpShape::Experts { experts, .. } = kind.mlp {
            // Between the kernels of one expert and the next.
            let held = (experts / self.split.ep).max(1.0);
            gaps += machine.of(ConstantRole::KernelGap) * held * self.expert_host(kind);
        }
        if machine.same_thread {
            seconds += self.launch_experts(kind);
        }
        [seconds, gaps]
    }

    /// Seconds of the host to launch one more expert. Of the kernels of a layer in 8 or 4 bits half are products, and half quantize what
    /// they multiply.
    fn expert_host(&self, kind: &KindShape) -> f64 {
        let quantizes = self.rate(kind).quantize_bytes > 0.0;
        let kernels = if quantizes || self.machine.same_thread { 1.0 } else { 0.5 };
        kernels * self.machine.of(ConstantRole::HostExpert)
    }

    /// The same of experts, where the host can't run ahead; nothing where it computes itself.
    pub(super) fn experts_host(&self, kind: &KindShape) -> f64 {
        if self.machine.same_thread { 0.0 } else { self.launch_experts(kind) }
    }

    /// Seconds of the host to launch experts, forward and backward.
    fn launch_experts(&self, kind: &KindShape) -> f64 {
        let MlpShape::Experts { experts, .. } = kind.mlp else { return 0.0 };
        // Grouped layers quantize and multiply expert by expert.
        let held = (experts / self.split.ep).max(1.0);
        // Where all experts are here the flex dispatcher is not there (Megatron-Core asks for several ranks), whatever the recipe says.
        let role =
            if self.options.fused_dispatch { ConstantRole::HostMoeFlex } else { ConstantRole::HostMoe };
        self.machine.of(role) + held * self.expert_host(kind)
    }
}
