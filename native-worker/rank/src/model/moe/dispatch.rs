//! Rows of tokens to the ranks of their experts and back: dropless all-to-all over expert parallelism, then a gather
//! over expert tensor parallelism, whose members hold slices of the same experts.

use anyhow::Context;
use tch::{Device, Kind, Tensor};

use super::products::Rows;
use crate::collectives::{Collectives, GroupId};
use crate::device::bring;

/// The groups of the expert grid.
#[derive(Clone, Copy)]
pub struct ExpertGrid {
    /// Ranks with different experts.
    pub ep: GroupId,
    /// Ranks with slices of the same experts.
    pub etp: GroupId,
}

/// Which row goes where, for one layer and micro batch.
pub struct Dispatch<'a> {
    world: &'a dyn Collectives,
    grid: ExpertGrid,
    top_k: i64,
    /// Of each row in the order of sending (by expert): its place among (token, choice).
    slots: Tensor,
    /// Rows to and from each expert-parallel member.
    sent: Vec<usize>,
    received: Vec<usize>,
    /// Rows that each expert-tensor-parallel member received.
    gathered: Vec<usize>,
    /// Of each row in the order of the local experts: its place among the gathered rows; none where that is the order of sending.
    by_expert: Option<Tensor>,
    rows: Rows,
}

fn count(number: i64) -> anyhow::Result<usize> {
    usize::try_from(number).context("a negative number of rows")
}

impl<'a> Dispatch<'a> {
    /// From the experts that tokens chose, `[tokens, top_k]`, of which each rank has so many. With products of all experts
    /// `together` the host need not know what each gets, and without other ranks asks nobody.
    ///
    /// # Errors
    /// When a collective fails.
    pub fn new(
        world: &'a dyn Collectives,
        grid: ExpertGrid,
        chosen: &Tensor,
        local: usize,
        together: bool,
    ) -> anyhow::Result<Dispatch<'a>> {
        let (members, slices) = (world.size(grid.ep), world.size(grid.etp));
        let flat = chosen.f_view([-1])?;
        let slots = flat.f_argsort_stable(true, 0, false)?;
        let mine = counted(&flat, i64::try_from(local * members)?)?;
        let top_k = chosen.size().last().copied().unwrap_or(1);
        if members * slices == 1 {
            let rows = match together {
                true => Rows::Ends(mine.f_cumsum(0, Kind::Int)?),
                false => Rows::Each(Vec::try_from(mine.f_to_device(Device::Cpu)?)?),
            };
            let (sent, received, gathered) = (Vec::new(), Vec::new(), Vec::new());
            return Ok(Dispatch {
                world,
                grid,
                top_k,
                slots,
                sent,
                received,
                gathered,
                by_expert: None,
                rows,
            });
        }
        // How many rows every member of the grid has for every expert: [etp, ep, experts].
        let everyones = gather_counts(world, grid.etp, &gather_counts(world, grid.ep, &mine)?)?;
        // The one time in a layer that the host waits for the device: how much goes where is the host's to say.
        let counts: Vec<i64> = Vec::try_from(everyones.f_to_device(Device::Cpu)?.f_view([-1])?)?;
        let (slice, member) = (world.index(grid.etp)?, world.index(grid.ep)?);
        let first = member * local;
        let rows_of_all = local * members;
        let mine = (slice * members + member) * rows_of_all;
        let mine = counts.get(mine..mine + rows_of_all).context("this rank's own counts")?;
        let sent = mine
            .chunks(local.max(1))
            .map(|chunk| count(chunk.iter().sum()))
            .collect::<Result<Vec<_>, _>>()?;
        // Blocks of rows as they lie after the gather: by slice, source, expert.
        let block = |slice: usize, source: usize, expert: usize| {
            counts[(slice * members + source) * rows_of_all + first + expert]
        };
        let rows_from =
            |slice: usize, source: usize| (0..local).map(|expert| block(slice, source, expert)).sum::<i64>();
        let received =
            (0..members).map(|source| count(rows_from(slice, source))).collect::<Result<Vec<_>, _>>()?;
        let gathered = (0..slices)
            .map(|slice| count((0..members).map(|source| rows_from(slice, source)).sum()))
            .collect::<Result<Vec<_>, _>>()?;
        let mut starts = Vec::with_capacity(slices * members * local);
        let mut next = 0;
        for slice in 0..slices {
            for source in 0..members {
                for expert in 0..local {
                    starts.push(next);
                    next += block(slice, source, expert);
                }
            }
        }
        let (mut by_expert, mut rows) = (Vec::new(), vec![0; local]);
        for (expert, rows) in rows.iter_mut().enumerate() {
            for from in 0..slices * members {
                let (start, length) =
                    (starts[from * local + expert], block(from / members, from % members, expert));
                by_expert.extend(start..start + length);
                *rows += length;
            }
        }
        let by_expert = Some(bring(&Tensor::f_from_slice(&by_expert)?, chosen.device())?);
        let rows = match together {
            true => Rows::Ends(bring(&ends(&rows)?, chosen.device())?),
            false => Rows::Each(rows),
        };
        Ok(Dispatch { world, grid, top_k, slots, sent, received, gathered, by_expert, rows })
    }

    /// Rows of each local expert.
    pub fn rows(&self) -> &Rows {
        &self.rows
    }

    /// A row for each choice of each token, `[tokens, width]`, in the order of sending.
    ///
    /// # Errors
    /// When libtorch fails. So for all below.
    pub fn of_tokens(&self, tokens: &Tensor) -> anyhow::Result<Tensor> {
        let token = self.slots.f_floor_divide_scalar(self.top_k)?;
        Ok(tokens.f_index_select(0, &token)?)
    }

    /// A row for each choice, `[tokens, top_k]`, in the order of sending, `[rows, 1]`.
    ///
    /// # Errors
    /// As above.
    pub fn of_choices(&self, choices: &Tensor) -> anyhow::Result<Tensor> {
        Ok(choices.f_reshape([-1, 1])?.f_index_select(0, &self.slots)?)
    }

    /// Of rows in the order of sending, `[tokens, top_k, width]`.
    fn to_choices(&self, rows: &Tensor) -> anyhow::Result<Tensor> {
        let placed = placed(rows, &self.slots)?;
        let width = rows.size().last().copied().unwrap_or(1);
        Ok(placed.f_view([-1, self.top_k, width])?)
    }

    /// Sums over each token's choices of rows in the order of sending: `[tokens, width]`.
    ///
    /// # Errors
    /// As above.
    pub fn sum_choices(&self, rows: &Tensor) -> anyhow::Result<Tensor> {
        Ok(self.to_choices(rows)?.f_sum_dim_intlist([1_i64].as_slice(), false, rows.kind())?)
    }

    /// Rows of one element in the order of sending, as `[tokens, top_k]`.
    ///
    /// # Errors
    /// As above.
    pub fn choices(&self, rows: &Tensor) -> anyhow::Result<Tensor> {
        Ok(self.to_choices(rows)?.f_squeeze_dim(-1)?)
    }

    fn exchange(
        &self,
        group: GroupId,
        input: &Tensor,
        sent: &[usize],
        received: &[usize],
    ) -> anyhow::Result<Tensor> {
        let rows: usize = received.iter().sum();
        let width = input.size().last().copied().unwrap_or(1);
        let mut output = Tensor::f_empty([rows as i64, width], (input.kind(), input.device()))?;
        self.world.all_to_all(group, &input.f_contiguous()?, sent, &mut output, received)?;
        Ok(output)
    }

    /// Takes rows in the order of sending to their experts: rows in the order of this rank's experts.
    ///
    /// # Errors
    /// As above, and when a collective fails.
    pub fn there(&self, mut rows: Tensor) -> anyhow::Result<Tensor> {
        if self.world.size(self.grid.ep) > 1 {
            rows = self.exchange(self.grid.ep, &rows, &self.sent, &self.received)?;
        }
        let slices = self.world.size(self.grid.etp);
        if slices > 1 {
            let mine = count(rows.size()[0])?;
            let copies = rows.f_repeat([slices as i64, 1])?;
            rows = self.exchange(self.grid.etp, &copies, &vec![mine; slices], &self.gathered)?;
        }
        match &self.by_expert {
            Some(by_expert) => Ok(rows.f_index_select(0, by_expert)?),
            None => Ok(rows),
        }
    }

    /// Takes rows in the order of this rank's experts back to whom they came from, summed over the slices of an expert.
    ///
    /// # Errors
    /// As above, and when a collective fails.
    pub fn back(&self, sorted: Tensor) -> anyhow::Result<Tensor> {
        let Some(by_expert) = &self.by_expert else { return Ok(sorted) };
        let mut rows = placed(&sorted, by_expert)?;
        drop(sorted);
        let slices = self.world.size(self.grid.etp);
        if slices > 1 {
            let mine: usize = self.received.iter().sum();
            let parts = self.exchange(self.grid.etp, &rows, &self.gathered, &vec![mine; slices])?;
            let width = parts.size().last().copied().unwrap_or(1);
            let kind = parts.kind();
            rows = parts.f_view([slices as i64, mine as i64, width])?.f_sum_dim_intlist(
                [0_i64].as_slice(),
                false,
                kind,
            )?;
        }
        if self.world.size(self.grid.ep) > 1 {
            rows = self.exchange(self.grid.ep, &rows, &self.received, &self.sent)?;
        }
        Ok(rows)
    }
}

/// How often each of `experts` experts was chosen. A histogram of libtorch's would have the host read the largest number first.
///
/// # Errors
/// When libtorch fails.
pub fn counted(chosen: &Tensor, experts: i64) -> anyhow::Result<Tensor> {
    let flat = chosen.f_reshape([-1])?;
    let counts = Tensor::f_zeros([experts], (Kind::Int64, chosen.device()))?;
    Ok(counts.f_scatter_add(0, &flat, &flat.f_ones_like()?)?)
}

/// Rows, each at its place of as many.
fn placed(rows: &Tensor, places: &Tensor) -> anyhow::Result<Tensor> {
    let mut placed = rows.f_empty_like()?;
    let _ = placed.f_index_copy_(0, places, rows)?;
    Ok(placed)
}

/// One behind the last row of each expert, of the numbers of their rows.
fn ends(rows: &[i64]) -> anyhow::Result<Tensor> {
    let sums = rows.iter().scan(0, |end, &rows| {
        *end += rows;
        Some(i32::try_from(*end))
    });
    let sums: Vec<i32> = sums.collect::<Result<_, _>>().context("more rows of experts than 32 bits count")?;
    Ok(Tensor::f_from_slice(&sums)?)
}

/// The members' counts one after the other.
fn gather_counts(world: &dyn Collectives, group: GroupId, counts: &Tensor) -> anyhow::Result<Tensor> {
    let members = world.size(group) as i64;
    let mut all = Tensor::f_empty([members * counts.numel() as i64], (Kind::Int64, counts.device()))?;
    world.all_gather(group, counts, &mut all)?;
    Ok(all)
}
