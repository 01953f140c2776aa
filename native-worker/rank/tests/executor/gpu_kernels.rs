//! Kernels that GPUs alone have, on GPUs of host memory, which have them, have them not, or have others.

use serde_json::{Value, json};

use crate::gpu::start;
use crate::harness::{PATIENCE, Run, set, tiny};

/// Kernels that GPUs alone have are tried before they are used: without them, or with others, the same is trained.
#[track_caller]
fn check(plan: &Value, kernels: [&str; 2]) {
    let losses = |run: &Run| run.steps(0).iter().map(|step| step.loss).collect::<Vec<f64>>();
    let mut on_cpu = Run::start(plan, &[]);
    on_cpu.succeed();
    let expected = losses(&on_cpu);
    for (variables, refused) in [
        (&[][..], false),
        (&[("FAKE_GPU_WITHOUT_KERNELS", "all")], true),
        (&[("FAKE_GPU_WITHOUT_KERNELS", "wrong")], true),
    ] {
        let mut run = start(plan, &[], variables);
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

const PRODUCTS: &str = "summing gradients of BFloat16 in fp32 in their product is not used";

#[test]
fn what_gpus_alone_have_is_used_where_it_is_right() {
    let mut plan = tiny(2, 1);
    set(&mut plan, "training.dtype", "bf16");
    set(&mut plan, "layout.cp", 2);
    check(&plan, ["without masks, by flash is not used", PRODUCTS]);
}

/// Documents that don't see each other are one call for all of a micro batch.
#[test]
fn documents_are_attended_to_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokens");
    let word = |place: u16| if place % 7 == 3 { 0 } else { 1 + place * 5 % 199 };
    let bytes: Vec<u8> = (0..16 * 40).flat_map(|place| word(place).to_le_bytes()).collect();
    std::fs::write(&path, bytes).unwrap();
    let mut plan = tiny(2, 2);
    set(&mut plan, "training.dtype", "bf16");
    set(&mut plan, "training.micro_batch_size", 2);
    set(&mut plan, "run.data", json!({"kind": "tokens", "path": path}));
    set(
        &mut plan,
        "run.documents",
        json!({"reset_positions": true, "reset_attention": true, "eod_token": 0}),
    );
    check(&plan, ["attention to packed documents of BFloat16 heads of 8, by flash is not used", PRODUCTS]);
}
