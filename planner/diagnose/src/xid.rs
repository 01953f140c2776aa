//! Xid numbers: what the NVIDIA driver reports of a GPU in the kernel's log, and what to do.
//!
//! NVIDIA, "Xid errors" and its Xid catalog (docs.nvidia.com/deploy/xid-errors), for A100 and later.

use super::causes::Role;

/// What a number means.
pub(super) struct Xid {
    /// The number.
    pub(super) number: u32,
    /// What happened, as a clause.
    pub(super) title: &'static str,
    /// What it is to the end of a run.
    pub(super) role: Role,
    /// What to do.
    pub(super) action: Action,
}

impl Xid {
    /// Whether the GPU or its link failed, and not what runs on it.
    pub(super) fn is_of_hardware(&self) -> bool {
        self.role == Role::Root && matches!(self.action, Action::Reset | Action::Replace | Action::Link)
    }
}

/// What is to be done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// The program's own fault, mostly.
    Program,
    /// Start again; watch.
    Restart,
    /// Reset the GPU.
    Reset,
    /// Drain, power-cycle, maybe replace.
    Replace,
    /// Look at the other Xid of that GPU.
    Follows,
    /// NVLink.
    Link,
}

impl Action {
    /// The steps, in order.
    pub(super) fn steps(self) -> &'static [&'static str] {
        match self {
            Action::Program => &[
                "a bug in a kernel or an index out of range, mostly: run the first failing rank with compute-sanitizer or CUDA_LAUNCH_BLOCKING=1",
                "other programs fail on this GPU too: dcgmi diag -r 3, and take the node out",
            ],
            Action::Restart => &[
                "start again from the last checkpoint; when it comes back on the same GPU, drain the node and ask for its replacement",
            ],
            Action::Reset => &[
                "drain the node: scontrol update nodename=NODE state=drain reason=xid",
                "reset the GPU when nothing runs on it (nvidia-smi --gpu-reset -i GPU) or reboot the node",
                "dcgmi diag -r 3 before it goes back; replace the GPU (RMA) when it comes back",
                "start again from the last checkpoint, without that node",
            ],
            Action::Replace => &[
                "drain the node: scontrol update nodename=NODE state=drain reason=xid",
                "power-cycle it (a reset is not enough); look at temperature, power and the PCIe slot",
                "dcgmi diag -r 3; replace the GPU (RMA) when it comes back",
                "start again from the last checkpoint, without that node",
            ],
            Action::Follows => &["the cause is the Xid, or the end of the program, just before it"],
            Action::Link => &[
                "drain the node; nvidia-smi nvlink -e for the link, and the fabric manager's log",
                "reset all GPUs of the node together, or reboot; replace what comes back",
                "start again from the last checkpoint, without that node",
            ],
        }
    }
}

const fn xid(number: u32, title: &'static str, role: Role, action: Action) -> Xid {
    Xid { number, title, role, action }
}

use Action::*;
use Role::*;

/// The numbers that end runs.
const KNOWN: &[Xid] = &[
    xid(8, "a GPU stopped processing", Unspecific, Restart),
    xid(11, "a GPU got an invalid command stream", Unspecific, Program),
    xid(13, "a kernel raised an exception on the GPU", Unspecific, Program),
    xid(31, "a kernel accessed an address that is not mapped", Unspecific, Program),
    xid(32, "a GPU got a corrupted command stream", Unspecific, Restart),
    xid(38, "a GPU's firmware failed", Root, Reset),
    xid(43, "a GPU stopped processing a program", Unspecific, Program),
    xid(44, "a GPU failed at a context switch", Root, Reset),
    xid(45, "work on a GPU was cleaned up after an earlier error", Cascade, Follows),
    xid(46, "a GPU stopped processing", Root, Reset),
    xid(48, "a GPU's memory has an uncorrectable (double-bit) error", Root, Reset),
    xid(54, "a GPU has no auxiliary power", Root, Replace),
    xid(61, "a GPU's internal controller stopped", Root, Reset),
    xid(62, "a GPU's internal controller halted", Root, Reset),
    xid(63, "a GPU's memory row is marked for remapping", Symptom, Reset),
    xid(64, "a GPU's memory row could not be remapped", Root, Replace),
    xid(68, "a GPU's video decoder failed", Unspecific, Restart),
    xid(69, "a kernel made an invalid request of the GPU", Unspecific, Program),
    xid(74, "NVLink reported an error", Root, Link),
    xid(79, "a GPU fell off the bus", Root, Replace),
    xid(92, "a GPU's memory has a high rate of corrected errors", Symptom, Reset),
    xid(94, "an uncorrectable memory error was contained to one program", Root, Reset),
    xid(95, "an uncorrectable memory error was not contained", Root, Reset),
    xid(109, "a GPU timed out at a context switch", Root, Reset),
    xid(110, "a GPU's security unit failed", Root, Replace),
    xid(119, "a GPU's system processor (GSP) timed out", Root, Reset),
    xid(120, "a GPU's system processor (GSP) failed", Root, Reset),
    xid(121, "the link between CPU and GPU (C2C) had an error", Symptom, Reset),
    xid(123, "a GPU's power unit failed", Root, Reset),
    xid(136, "NVLink reported an error", Root, Link),
    xid(137, "a program made an invalid access over NVLink", Unspecific, Program),
    xid(140, "a GPU's memory has an error that was not recovered", Root, Reset),
    xid(143, "a GPU could not be initialized", Root, Reset),
    xid(144, "NVLink reported an error", Root, Link),
    xid(145, "NVLink reported an error", Root, Link),
    xid(146, "NVLink reported an error", Root, Link),
    xid(147, "NVLink reported an error", Root, Link),
    xid(148, "NVLink reported an error", Root, Link),
    xid(149, "NVLink reported an error", Root, Link),
    xid(150, "NVLink reported an error", Root, Link),
    xid(151, "a GPU's key rotation failed", Root, Reset),
    xid(154, "the driver says how a GPU can be recovered", Cascade, Follows),
    xid(155, "NVLink went down", Root, Link),
    xid(156, "a part of a GPU is being retired", Symptom, Reset),
    xid(157, "a part of a GPU could not be retired", Root, Replace),
    xid(158, "a GPU timed out for good", Root, Replace),
    xid(160, "a memory channel of a GPU is being retired", Symptom, Reset),
    xid(161, "a memory channel of a GPU could not be retired", Root, Replace),
    xid(163, "NVLink reported an error", Root, Link),
    xid(167, "a GPU's PCIe link timed out for good", Root, Replace),
];

/// What is said of a number that is not listed.
static OTHER: Xid = xid(0, "the driver reported an error of a GPU", Unspecific, Restart);

/// What a number means.
pub(super) fn known(number: u32) -> &'static Xid {
    KNOWN.iter().find(|xid| xid.number == number).unwrap_or(&OTHER)
}

/// The number and the GPU's PCI address of a kernel line: `NVRM: Xid (PCI:0000:3b:00): 79, pid=...`. One that says which
/// Xid it follows from counts as that one; those of switches (`SXid`) have numbers of their own and are left out.
pub(super) fn read(line: &str) -> Option<(u32, Option<String>)> {
    let place = line.find("Xid")?;
    if line[..place].ends_with('S') {
        return None;
    }
    let rest = &line[place + 3..];
    if let Some(inside) = rest.trim_start().strip_prefix("(PCI:") {
        let (address, rest) = inside.split_once(')')?;
        let rest = rest.trim_start_matches([':', ' ']);
        let cause = rest.split_once("caused by previous Xid ").map_or(rest, |(_, cause)| cause);
        let (number, _) = super::origin::digits(cause)?;
        let is_address = address.len() <= 16
            && address.bytes().all(|byte| byte.is_ascii_hexdigit() || b":.".contains(&byte));
        return Some((number, is_address.then(|| format!("PCI {address}"))));
    }
    // `Xid 79`, `Xid: 79`, of monitors
    let (number, _) = super::origin::digits(rest.trim_start_matches([':', ' ', '=', '#']))?;
    (1..=200).contains(&number).then_some((number, None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let address = |text: &str| Some(format!("PCI {text}"));
        assert_eq!(
            read("NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus."),
            Some((79, address("0000:3b:00")))
        );
        assert_eq!(read("NVRM: Xid (PCI:0000:9d:00.0): 119, Timeout"), Some((119, address("0000:9d:00.0"))));
        assert_eq!(
            read(
                "NVRM: Xid (PCI:0000:dc:00): 45, pid=7, name=python3, Ch 00000001 caused by previous Xid 149"
            ),
            Some((149, address("0000:dc:00")))
        );
        assert_eq!(read("nvidia-nvswitch3: SXid (PCI:0000:85:00.0): 20034, Fatal, Link 27"), None);
        assert_eq!(read("DCGM saw Xid 94 on GPU 3"), Some((94, None)));
        assert_eq!(read("Xid"), None);
        assert_eq!(known(79).action, Action::Replace);
        assert_eq!(known(9999).number, 0);
    }

    #[test]
    fn numbers_are_listed_once() {
        assert!(KNOWN.windows(2).all(|pair| pair[0].number < pair[1].number));
    }
}
