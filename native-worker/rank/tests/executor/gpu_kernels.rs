//! Kernels that GPUs alone have, on GPUs of host memory, which have them, have them not, or have others.

use crate::gpu::start;
use crate::harness::{PATIENCE, Run, set, tiny};

/// Kernels that GPUs alone have are tried before they are used: without them, or with others, the same is trained.
#[test]
fn what_gpus_alone_have_is_used_where_it_is_right() {
    let mut plan = tiny(2, 1);
    set(&mut plan, "training.dtype", "bf16");
    set(&mut plan, "layout.cp", 2);
    let losses = |run: &Run| run.steps(0).iter().map(|step| step.loss).collect::<Vec<f64>>();
    let mut on_cpu = Run::start(&plan, &[]);
    on_cpu.succeed();
    let expected = losses(&on_cpu);
    let kernels =
        ["by flash is not used", "summing gradients of BFloat16 in fp32 in their product is not used"];
    for (variables, refused) in [
        (&[][..], false),
        (&[("FAKE_GPU_WITHOUT_KERNELS", "all")], true),
        (&[("FAKE_GPU_WITHOUT_KERNELS", "wrong")], true),
    ] {
        let mut run = start(&plan, &[], variables);
        let finished = run.finish(PATIENCE);
        let found = losses(&run);
        assert_eq!(found.len(), expected.len(), "{finished:?}");
        for (one, other) in expected.iter().zip(&found) {
            assert!((one - other).abs() < 2e-3 * one, "{found:?}, not {expected:?}: {variables:?}");
        }
        for rank in &finished {
            for kernel in kernels {
                let said = rank.stderr.matches(kernel).count();
                assert_eq!(said, usize::from(refused), "{kernel}: {variables:?}: {}", rank.stderr);
            }
        }
    }
}
