//! The allocator hook: live tensor bytes of this thread by category, on CPU as on GPU.

use std::ffi::{c_char, c_int, c_void};
use std::marker::PhantomData;

use tch::{Device, Tensor};

use super::checked;

unsafe extern "C" {
    fn shardplan_tracker_install(gpu: bool) -> *mut c_char;
    fn shardplan_tracker_remove() -> *mut c_char;
    fn shardplan_tracker_category(category: c_int);
    fn shardplan_tracker_read(out: *mut i64) -> bool;
    fn shardplan_tracker_reset_peak();
    fn shardplan_tracker_settle(pointer: *mut c_void, bytes: i64) -> bool;
    fn shardplan_data_pointer(tensor: *const c_void) -> *mut c_void;
}

const CATEGORIES: usize = 6;

/// What an allocation is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Category {
    /// What a step makes and drops.
    Step = 0,
    /// Compute-dtype parameters.
    Weights = 1,
    /// Main gradient buffers.
    Gradients = 2,
    /// Master weights and moments.
    Optimizer = 3,
    /// Buffers that stay for what is gathered and reduced.
    Buffers = 4,
    /// What the allocator gave beyond what was asked for a settled tensor.
    Rounding = 5,
}

/// Bytes by category.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bytes([i64; CATEGORIES]);

impl Bytes {
    /// Bytes of one category.
    pub fn of(&self, category: Category) -> u64 {
        u64::try_from(self.0[category as usize]).unwrap_or(0)
    }

    /// Bytes of all categories.
    pub fn total(&self) -> u64 {
        u64::try_from(self.0.iter().sum::<i64>()).unwrap_or(0)
    }
}

/// What the hook has counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reading {
    /// Live bytes now.
    pub live: Bytes,
    /// Live bytes when all of them together were at their peak.
    pub at_peak: Bytes,
    /// That peak.
    pub peak: u64,
    /// What the allocator held from the device then; 0 on CPU.
    pub reserved_at_peak: u64,
    /// What a GPU's allocator has given out as it says itself, at its last event; 0 on CPU.
    pub allocated: u64,
}

/// The hook, while it is in place. It belongs to the thread that installed it.
#[derive(Debug)]
pub struct Tracker {
    measures: bool,
    not_send: PhantomData<*const ()>,
}

impl Tracker {
    /// Puts the hook in place on this thread, for tensors on `device`.
    ///
    /// # Errors
    /// When libtorch refuses.
    pub fn install(device: Device) -> anyhow::Result<Tracker> {
        // SAFETY: takes a flag; the returned message is ours.
        checked(unsafe { shardplan_tracker_install(device != Device::Cpu) })?;
        Ok(Tracker { measures: true, not_send: PhantomData })
    }

    /// None in place: nothing is counted, and every reading is zero. For measuring what measuring costs.
    pub fn absent() -> Tracker {
        Tracker { measures: false, not_send: PhantomData }
    }

    /// Whether anything is counted.
    pub fn measures(&self) -> bool {
        self.measures
    }

    /// What was counted.
    pub fn read(&self) -> Reading {
        let mut out = [0_i64; 2 * CATEGORIES + 3];
        // SAFETY: `out` has the room that the shim fills.
        unsafe { shardplan_tracker_read(out.as_mut_ptr()) };
        let of_each = |start: usize| {
            let mut bytes = [0; CATEGORIES];
            bytes.copy_from_slice(&out[start..start + CATEGORIES]);
            Bytes(bytes)
        };
        let last = |index: usize| u64::try_from(out[index]).unwrap_or(0);
        Reading {
            live: of_each(0),
            at_peak: of_each(CATEGORIES),
            peak: last(2 * CATEGORIES),
            reserved_at_peak: last(2 * CATEGORIES + 1),
            allocated: last(2 * CATEGORIES + 2),
        }
    }

    /// Starts a new peak at what is live now.
    pub fn reset_peak(&self) {
        // SAFETY: takes nothing.
        unsafe { shardplan_tracker_reset_peak() };
    }

    /// Runs `make` with its allocations counted under `category`. The tensor that it returns is counted by its own
    /// bytes; what the allocator gave beyond that is `Rounding`.
    ///
    /// # Errors
    /// When `make` fails.
    pub fn allocate(
        &self,
        category: Category,
        make: impl FnOnce() -> anyhow::Result<Tensor>,
    ) -> anyhow::Result<Tensor> {
        // SAFETY: takes a number.
        unsafe { shardplan_tracker_category(category as c_int) };
        let made = make();
        // SAFETY: takes a number.
        unsafe { shardplan_tracker_category(Category::Step as c_int) };
        let tensor = made?;
        let bytes = tensor.numel() * tensor.kind().elt_size_in_bytes();
        // SAFETY: the tensor is alive for the call.
        let pointer = unsafe { shardplan_data_pointer(tensor.as_ptr().cast()) };
        // SAFETY: the pointer is only compared with those that the hook has seen.
        unsafe { shardplan_tracker_settle(pointer, i64::try_from(bytes).unwrap_or(i64::MAX)) };
        Ok(tensor)
    }
}

impl Drop for Tracker {
    fn drop(&mut self) {
        // SAFETY: takes nothing; the hook is this thread's, as `Tracker` is not Send.
        let _ = checked(unsafe { shardplan_tracker_remove() });
    }
}
