//! A step of FSDP2 moment by moment, as `_fsdp_param_group.py` orders it.
//!
//! Forward gathers the next unit while one is at work, and a gather's buffer lives until the next one is copied out.
//! Backward gathers the unit before while one is at work; the input of a reduction lives until the next reduction
//! starts; gradients of a unit are whole until they are reduced.

use super::gathered::{StageGathers, sharded_size};
use super::head::{Loss, loss};
use super::pieces::{Piece, Pieces, Role};
use crate::layout::chunks_of_stage;
use crate::memory::parts::{SavedBytes, Saver};
use crate::memory::phases::Phase;
use crate::memory::setting::PlanTerms;
use crate::memory::stage::LayerTerms;
use crate::units::Quantity;

/// What is alive at one moment beside shards and optimizer state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moment {
    /// Phase of the step.
    pub phase: &'static str,
    /// Saved activations.
    pub activations: SavedBytes,
    /// Gathered parameters.
    pub unsharded: Quantity,
    /// Buffers of gathers under way.
    pub gather: Quantity,
    /// Inputs of reductions under way.
    pub scatter: Quantity,
    /// Gradients that are not reduced yet.
    pub gradients: Quantity,
    /// Everything else.
    pub temporaries: Quantity,
    /// Bytes of the sharded gradients that don't exist yet.
    pub absent: Quantity,
    /// Bytes freed before that the allocator keeps in segments too small for what this moment asks for.
    pub too_small: Quantity,
    /// What the stream of reductions keeps of the sharded gradients of the step before, which no other stream can use.
    pub reduced_before: Quantity,
}

impl Moment {
    fn beside(&self) -> Quantity {
        self.unsharded + self.gather + self.scatter + self.gradients + self.temporaries
    }

    /// All of it, less what is absent of the shards.
    pub fn total(&self) -> f64 {
        (self.activations.total() + self.beside()).float() - self.absent.float()
    }

    /// As a phase of the answer, where gathers took so many bytes at most. Gathers have a stream of their own, and what
    /// the allocator keeps for one stream serves no other.
    pub(crate) fn as_phase(&self, most_gathered: Quantity) -> Phase {
        Phase {
            name: self.phase,
            activations: self.activations,
            transient: self.beside(),
            absent_gradients: self.absent,
            cached: most_gathered.saturating_sub(self.gather) + self.too_small + self.reduced_before,
        }
    }
}

/// Sums over the first pieces: entry n is that of the first n.
struct Sums {
    /// Parameters that stay gathered, and the root.
    staying: Vec<Quantity>,
    /// Saved by the pieces, and by the micro batches beside.
    saved: Vec<SavedBytes>,
    /// Elements of their shards, and of the root's, whose gradients are made in a step's last micro batch alone.
    shards: Vec<Quantity>,
    /// Elements gathered.
    gathered: Vec<Quantity>,
}

impl Sums {
    fn of(pieces: &Pieces, base: SavedBytes, param: Quantity, several: bool) -> Sums {
        fn from<T>(first: T, count: usize) -> Vec<T> {
            let mut all = Vec::with_capacity(count + 1);
            all.push(first);
            all
        }
        let count = pieces.list.len();
        let mut sums = Sums {
            staying: from(param * pieces.root, count),
            saved: from(base, count),
            shards: from(pieces.root_shard, count),
            gathered: from(Quantity::ZERO, count),
        };
        for (index, piece) in pieces.list.iter().enumerate() {
            let stays = if piece.stays { piece.gathered_bytes } else { piece.kept_part };
            sums.staying.push(sums.staying[index] + stays);
            sums.saved.push(sums.saved[index] + piece.bytes.saved);
            // What no unit wraps has its gradients from the first micro batch on.
            let early = if several { piece.left_out } else { Quantity::ZERO };
            sums.shards.push(sums.shards[index] + piece.shard.saturating_sub(early));
            sums.gathered.push(sums.gathered[index] + piece.gathered);
        }
        sums
    }
}

/// Sizes that the whole walk uses.
struct Walk<'a> {
    at: PlanTerms<'a>,
    sums: Sums,
    pieces: Pieces,
    /// Bytes of an element while gathered, reduced, sharded.
    param: Quantity,
    reduce: Quantity,
    sharded: Quantity,
    /// Bytes of an element of a gradient that is accumulated whole; none when every micro batch is reduced.
    accumulated: Option<Quantity>,
    /// Whether sharded gradients exist from an earlier micro batch on.
    present: bool,
    /// Buffers that last through the walk.
    buffers: Quantity,
}

/// Tells all moments of a step of torch that can be its fullest.
pub(super) fn walk(terms: &LayerTerms<'_>, stage: u64, gathers: &StageGathers, tell: &mut dyn FnMut(Moment)) {
    let plan = terms.at.plan;
    let pieces = Pieces::of(terms, stage, &gathers.units);
    let settings = &plan.layout.fsdp;
    let several = plan.microbatches() > 1;
    let wrapped =
        pieces.root > Quantity::ZERO || pieces.list.iter().any(|piece| piece.gathered > Quantity::ZERO);
    let param = Quantity::from(plan.training.dtype.size());
    let base = pieces.others;
    let chunks = chunks_of_stage(&plan.layout, plan.model.num_layers, stage).unwrap_or_default();
    let mut walk = Walk {
        at: terms.at,
        sums: Sums::of(&pieces, base, param, several),
        param,
        reduce: Quantity::from(settings.reduce_dtype.size()),
        sharded: sharded_size(plan),
        // Gradients that wait are in the type of the reduction.
        accumulated: (several && settings.sync_last && wrapped)
            .then(|| Quantity::from(settings.reduce_dtype.size())),
        present: several && (!settings.sync_last || !wrapped),
        buffers: boundaries(&terms.at, stage),
        pieces,
    };
    let modules = if chunks.iter().any(|chunk| chunk.mtp) { plan.model.mtp_layers } else { 0 };
    let mut tell = |mut moment: Moment| {
        if wrapped {
            // The output of a reduction, of which a sharded gradient is a view, is made on the stream of reductions
            // (`_fsdp_collectives.foreach_reduce`).
            moment.reduced_before = moment.absent;
        }
        tell(moment);
    };
    walk.forward(&mut tell);
    if chunks.iter().any(|chunk| chunk.loss) {
        let loss = loss(&walk.at, modules, gathers.gathers_logits);
        walk.buffers += loss.held;
        walk.head(&loss, &mut tell);
    }
    walk.backward(&mut tell);
    walk.end(&mut tell);
}

/// Receive buffers of torch.distributed.pipelining, one for every micro batch and neighbour, and the outputs of the
/// stage that wait for their backward.
fn boundaries(at: &PlanTerms<'_>, stage: u64) -> Quantity {
    let plan = at.plan;
    if plan.layout.pp == 1 {
        return Quantity::ZERO;
    }
    let neighbours = u64::from(stage > 0) + u64::from(stage + 1 < plan.layout.pp);
    let (live, chunks) = crate::memory::live::live_chunks(plan, stage);
    let buffers = plan.microbatches().saturating_mul(neighbours).saturating_mul(chunks);
    Quantity::from(buffers.saturating_add(live)) * at.stream()
}

impl Walk<'_> {
    fn list(&self) -> &[Piece] {
        &self.pieces.list
    }

    /// Parameters that stay gathered among the first `count` pieces, and the root.
    fn staying(&self, count: usize) -> Quantity {
        self.sums.staying[count]
    }

    /// Saved by the first `count` pieces, and by the micro batches beside.
    fn saved(&self, count: usize) -> SavedBytes {
        self.sums.saved[count]
    }

    /// A moment at which the gradients of the first `count` pieces and of the root are not reduced.
    fn moment(&self, phase: &'static str, count: usize) -> Moment {
        let shards = self.sums.shards[count];
        let gathered = &self.sums.gathered;
        let summed = gathered[count].saturating_sub(gathered[self.pieces.summed_from(count)]);
        let whole = summed + self.pieces.root;
        Moment {
            phase,
            temporaries: self.buffers,
            gradients: self.accumulated.map_or(Quantity::ZERO, |size| size * whole),
            absent: if self.present { Quantity::ZERO } else { self.sharded * shards },
            ..Moment::default()
        }
    }

    fn forward(&self, tell: &mut dyn FnMut(Moment)) {
        let list = self.list();
        for (index, piece) in list.iter().enumerate() {
            let next = list.get(index + 1).map_or(Quantity::ZERO, |next| next.gathered_bytes);
            let at_work = piece.at_work();
            // What a checkpoint will recompute is made in forward too.
            let made = piece.bytes.whole.saturating_sub(piece.bytes.saved.total());
            let mut moment = self.moment("forward", list.len());
            moment.activations = self.saved(index + 1);
            moment.unsharded = self.staying(index + 1) + at_work;
            moment.gather = piece.gathered_bytes + next;
            moment.temporaries += made.max(piece.bytes.forward);
            tell(moment);
        }
    }

    /// The loss; where norm and output layer are a unit, the norm's backward gathers it once more.
    fn head(&self, loss: &Loss, tell: &mut dyn FnMut(Moment)) {
        let list = self.list();
        let last = list.last().filter(|piece| piece.role == Role::Last);
        let layers = list.len() - usize::from(last.is_some());
        let unit = last.map_or(Quantity::ZERO, |piece| piece.gathered_bytes);
        let mut at_loss = self.moment("head", list.len());
        at_loss.activations = self.saved(layers) + loss.saved;
        at_loss.unsharded = self.staying(layers) + unit;
        at_loss.temporaries += loss.transient + loss.waiting;
        at_loss.too_small = loss.gradient + self.forward_temporaries();
        tell(at_loss);
        if let Some(piece) = last {
            let output = self.pieces.output;
            let mut again = self.moment("head", layers);
            again.activations = self.saved(layers) + SavedBytes::of(Saver::Head, self.at.stream());
            again.unsharded = self.staying(layers) + unit;
            again.gather = unit;
            again.scatter = if self.accumulated.is_some() { Quantity::ZERO } else { output * self.reduce };
            again.absent += if self.present {
                Quantity::ZERO
            } else {
                self.sharded * (piece.shard - shard_of(piece, output))
            };
            again.temporaries += self.at.stream() + loss.waiting;
            tell(again);
        } else {
            // The output layer's gradient, beside that of the logits, waits for the rest of the root.
            let mut backward = self.moment("head", list.len());
            backward.activations = self.saved(layers) + SavedBytes::of(Saver::Head, 2 * self.at.stream());
            backward.unsharded = self.staying(layers);
            backward.gradients += self.root_gradient();
            backward.temporaries += loss.gradient + loss.waiting;
            tell(backward);
        }
    }

    /// What the forward of a layer makes and gives back.
    fn forward_temporaries(&self) -> Quantity {
        let of =
            |piece: &Piece| piece.bytes.whole.saturating_sub(piece.bytes.saved.total()) + piece.bytes.forward;
        self.list().iter().map(of).max().unwrap_or(Quantity::ZERO)
    }

    /// Gradient of the output layer in the root, whole until the root is reduced.
    fn root_gradient(&self) -> Quantity {
        if self.accumulated.is_some() { Quantity::ZERO } else { self.pieces.root_head * self.param }
    }

    fn backward(&self, tell: &mut dyn FnMut(Moment)) {
        let list = self.list();
        for index in (0..list.len()).rev() {
            let piece = &list[index];
            if piece.role == Role::Last {
                continue;
            }
            let at_work = piece.at_work();
            let before = index.checked_sub(1).map(|before| &list[before]);
            let ahead =
                before.filter(|before| !before.stays).map_or(Quantity::ZERO, |before| before.gathered_bytes);
            let reducing = match list.get(index + 1) {
                // After the norm only its own small reduction is left.
                Some(next) if next.role == Role::Last => next.gathered - self.pieces.output,
                Some(next) => next.gathered,
                None => Quantity::ZERO,
            };
            // Of what no unit wraps a micro batch's gradients are added to those of the ones before.
            let gradients = (piece.gathered + piece.left_out) * self.param;
            let mut start = self.moment("backward", index + 1);
            start.unsharded = self.staying(index + 1) + at_work;
            start.gather = ahead;
            start.scatter = reducing * self.reduce;
            start.gradients += self.root_gradient();
            let mut end = start;
            start.activations = self.saved(index + 1);
            let recomputed = piece.bytes.whole.saturating_sub(piece.bytes.saved.total());
            start.temporaries += recomputed + piece.bytes.backward;
            // All of the unit's gradients, its input and that of its first matrices, and gradients of them.
            end.activations = self.saved(index) + SavedBytes::of(Saver::Norms, 2 * self.at.stream());
            end.gradients += gradients;
            end.temporaries += 4 * self.at.stream();
            tell(start);
            tell(end);
            if piece.gathered > Quantity::ZERO {
                tell(self.reduction(index, ahead, gradients));
            }
        }
    }

    /// The moment at which a unit's gradients are copied into the input of their reduction: its parameters are given
    /// back, the input before is freed.
    fn reduction(&self, index: usize, ahead: Quantity, gradients: Quantity) -> Moment {
        let piece = &self.list()[index];
        let mut moment = self.moment("backward", index + 1);
        moment.activations = self.saved(index) + SavedBytes::of(Saver::Norms, self.at.stream());
        moment.unsharded = self.staying(index);
        moment.gather = ahead;
        // Accumulated gradients are added to already; of the last parameter the new one is still there.
        let fresh = if self.accumulated.is_some() { piece.largest * self.param } else { gradients };
        moment.gradients += self.root_gradient() + fresh;
        moment.temporaries += piece.gathered * self.reduce + self.at.stream();
        moment
    }

    /// The root's reduction, before which it is given back, and the optimizer.
    fn end(&self, tell: &mut dyn FnMut(Moment)) {
        let root = self.pieces.root;
        let mut reduce = self.moment("reduction", 0);
        reduce.activations = self.saved(0);
        reduce.gradients = if self.accumulated.is_some() { root * self.reduce } else { root * self.param };
        reduce.temporaries += root * self.reduce;
        let shards = self.pieces.root_shard + self.list().iter().map(|piece| piece.shard).sum::<Quantity>();
        // torch's multi-tensor Adam makes the denominators of all parameters before it uses them.
        let update = shards * self.sharded;
        tell(reduce);
        tell(Moment { phase: "optimizer", temporaries: self.buffers + update, ..Moment::default() });
    }
}

/// Elements of a piece's shard that are of `gathered` of its elements.
fn shard_of(piece: &Piece, gathered: Quantity) -> Quantity {
    if piece.gathered > Quantity::ZERO { piece.shard * gathered / piece.gathered } else { Quantity::ZERO }
}
