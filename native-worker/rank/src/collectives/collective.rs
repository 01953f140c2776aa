//! What members of a group do together: each collective with its tensors, and what must be true of them on any transport.

use anyhow::ensure;
use tch::Tensor;

use super::Reduce;

/// What a group does: its name in records and messages, and its number between ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Name {
    /// All members have the reduction of all.
    AllReduce,
    /// All have the parts of all.
    AllGather,
    /// Each has its part of the sum.
    ReduceScatter,
    /// All have what one had.
    Broadcast,
    /// All have come.
    Barrier,
    /// Each has what the others had for it.
    AllToAll,
    /// A message to a member.
    Send,
    /// A message from one.
    Receive,
    /// Messages to and from one, side by side.
    Exchange,
    /// Parts are summed, each on the member that it is for.
    ReduceEach,
}

impl Name {
    /// All, by number.
    pub const ALL: [Name; 10] = [
        Name::AllReduce,
        Name::AllGather,
        Name::ReduceScatter,
        Name::Broadcast,
        Name::Barrier,
        Name::AllToAll,
        Name::Send,
        Name::Receive,
        Name::Exchange,
        Name::ReduceEach,
    ];

    /// The phase of a step that its seconds are.
    pub fn phase(self) -> String {
        format!("comm.{}", self.name())
    }

    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Name::AllReduce => "all_reduce",
            Name::AllGather => "all_gather",
            Name::ReduceScatter => "reduce_scatter",
            Name::Broadcast => "broadcast",
            Name::Barrier => "barrier",
            Name::AllToAll => "all_to_all",
            Name::Send => "send",
            Name::Receive => "receive",
            Name::Exchange => "exchange",
            Name::ReduceEach => "reduce",
        }
    }
}

/// A collective that all members of a group enter.
#[derive(Debug)]
pub enum Collective<'a> {
    /// Replaces the tensor on every member by the reduction of all.
    AllReduce(Reduce, &'a mut Tensor),
    /// Fills `output` with the members' `input`s one after the other. `input` may be a part of `output`.
    AllGather {
        /// A part, the same size on all members.
        input: &'a Tensor,
        /// All parts.
        output: &'a mut Tensor,
    },
    /// Fills `output` with this member's part of the sum of all `input`s. `output` may be a part of `input`.
    ReduceScatter {
        /// A part for each member.
        input: &'a Tensor,
        /// This member's.
        output: &'a mut Tensor,
    },
    /// Replaces each tensor, on the member whose index it is with, by the sum of all members'. What the others have of it is not to
    /// be used after.
    ReduceEach(&'a mut [(usize, Tensor)]),
    /// Replaces `tensor` by that of a member.
    Broadcast {
        /// The member's index in the group.
        root: usize,
        /// The tensor.
        tensor: &'a mut Tensor,
    },
    /// Replaces each tensor by that of the member whose index it is with.
    BroadcastEach(&'a mut [(usize, Tensor)]),
    /// Sends each member its rows of `input`, and fills `output` with what the members sent to this one, in their order.
    AllToAll {
        /// Rows for all members, along the first dim.
        input: &'a Tensor,
        /// How many are for each.
        input_rows: &'a [usize],
        /// Rows from all members.
        output: &'a mut Tensor,
        /// How many are from each.
        output_rows: &'a [usize],
    },
    /// Returns once all members have entered.
    Barrier,
}

impl Collective<'_> {
    /// Its name.
    pub fn name(&self) -> Name {
        match self {
            Collective::AllReduce(..) => Name::AllReduce,
            Collective::AllGather { .. } => Name::AllGather,
            Collective::ReduceScatter { .. } => Name::ReduceScatter,
            Collective::Broadcast { .. } | Collective::BroadcastEach(_) => Name::Broadcast,
            Collective::AllToAll { .. } => Name::AllToAll,
            Collective::ReduceEach(_) => Name::ReduceEach,
            Collective::Barrier => Name::Barrier,
        }
    }

    /// The tensor that it fills.
    pub fn filled(&self) -> Option<&Tensor> {
        match self {
            Collective::AllReduce(_, tensor) | Collective::Broadcast { tensor, .. } => Some(tensor),
            Collective::AllGather { output, .. }
            | Collective::ReduceScatter { output, .. }
            | Collective::AllToAll { output, .. } => Some(output),
            Collective::ReduceEach(parts) | Collective::BroadcastEach(parts) => {
                parts.first().map(|(_, part)| part)
            }
            Collective::Barrier => None,
        }
    }

    /// Refuses tensors that a group of so many can't do it with.
    ///
    /// # Errors
    /// When parts don't make up the whole, or there is no such member.
    pub fn check(&self, members: usize) -> anyhow::Result<()> {
        match self {
            Collective::AllGather { input, output } => fit(input, output, members),
            Collective::ReduceScatter { input, output } => fit(output, input, members),
            Collective::Broadcast { root, .. } => is_member(*root, members),
            Collective::ReduceEach(parts) | Collective::BroadcastEach(parts) => {
                parts.iter().try_for_each(|(member, _)| is_member(*member, members))
            }
            Collective::AllToAll { input, input_rows, output, output_rows } => {
                rows_are_all(input, input_rows, members)?;
                rows_are_all(output, output_rows, members)
            }
            Collective::AllReduce(..) | Collective::Barrier => Ok(()),
        }
    }

    /// Does it in a group of one.
    ///
    /// # Errors
    /// When libtorch fails.
    pub fn alone(self) -> anyhow::Result<()> {
        match self {
            Collective::AllGather { input, output }
            | Collective::ReduceScatter { input, output }
            | Collective::AllToAll { input, output, .. } => Ok(output.f_copy_(input)?),
            Collective::AllReduce(..)
            | Collective::ReduceEach(_)
            | Collective::Broadcast { .. }
            | Collective::BroadcastEach(_)
            | Collective::Barrier => Ok(()),
        }
    }
}

fn is_member(member: usize, members: usize) -> anyhow::Result<()> {
    ensure!(member < members, "a group of {members} ranks has no member {member}");
    Ok(())
}

/// Refuses a part that does not go `members` times into the whole.
fn fit(part: &Tensor, whole: &Tensor, members: usize) -> anyhow::Result<()> {
    ensure!(
        part.numel() * members == whole.numel() && part.kind() == whole.kind(),
        "a part of {} elements of {:?} does not go {members} times into {} of {:?}",
        part.numel(),
        part.kind(),
        whole.numel(),
        whole.kind()
    );
    Ok(())
}

/// Refuses rows that are not those of a tensor that is cut along its first dim.
fn rows_are_all(tensor: &Tensor, rows: &[usize], members: usize) -> anyhow::Result<()> {
    let first = tensor.size().first().copied().unwrap_or(0);
    ensure!(
        rows.len() == members && rows.iter().sum::<usize>() == usize::try_from(first)?,
        "{rows:?} rows for the {members} members are not the {first} rows of a tensor of shape {:?}",
        tensor.size()
    );
    Ok(())
}
