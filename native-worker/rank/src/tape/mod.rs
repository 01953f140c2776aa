//! The explicit tape: compute between collectives, backward in reverse.
//!
//! A segment is recorded by libtorch and sees only detached inputs, so libtorch's graph never crosses a collective. A
//! function brings its own backward and keeps what it says, where libtorch would keep more. Values that others need
//! are kept by whoever needs them. Gradients of weights go into the main gradient buffers as soon as they are there,
//! and are dropped.
//!
//! A checkpoint keeps the inputs of what it runs and runs it again in backward. A forgotten value is made again by those
//! who kept it. Backward can be split: the gradient of the input first, weight gradients that can wait (`OfWeights`)
//! later, as zero-bubble schedules ask.

mod backward;
mod parallel;

pub use backward::Deferred;
pub use parallel::TensorParallel;

use std::collections::BTreeMap;
use std::rc::Rc;

use planner::shard::fsdp::Section;
use tch::{Tensor, no_grad, with_grad};

use crate::collectives::Collectives;

/// A value that flows between segments. Dropping it drops its data, not its place on the tape.
#[derive(Debug)]
pub struct Flow {
    id: usize,
    data: Tensor,
}

impl Flow {
    /// The data, outside of any graph.
    pub fn data(&self) -> &Tensor {
        &self.data
    }

    /// The same value for somebody else who uses it up.
    pub fn another(&self) -> Flow {
        Flow { id: self.id, data: self.data.shallow_clone() }
    }

    /// The place on the tape.
    pub fn place(&self) -> Place {
        Place(self.id)
    }

    /// The place on the tape and the data, which can then be dropped before the place is needed.
    pub fn split(self) -> (Place, Tensor) {
        (Place(self.id), self.data)
    }
}

/// A value's place on the tape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place(usize);

/// What ranks of the tensor-parallel group do with their parts of a sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exchange {
    /// Forward: sum and keep one's own slice of the sequence. Backward: join the slices.
    SumScatter,
    /// Forward: sum. Backward: nothing.
    Sum,
}

/// Makes a forgotten value again.
type Again<'a> = Rc<dyn Fn() -> anyhow::Result<Tensor> + 'a>;

/// A value kept for backward: its data, or how to make it again.
pub enum Kept<'a> {
    /// The data.
    Data(Tensor),
    /// How to make it.
    Again(Again<'a>),
}

impl Kept<'_> {
    /// The data; made again when it was forgotten.
    ///
    /// # Errors
    /// When libtorch or a collective fails in making it.
    pub fn get(&self) -> anyhow::Result<Tensor> {
        match self {
            Kept::Data(data) => Ok(data.shallow_clone()),
            Kept::Again(make) => make(),
        }
    }
}

/// Gradients that a function's backward makes.
pub struct Gradients<'a> {
    /// Of its inputs, in their order.
    pub inputs: Vec<Tensor>,
    /// Of its weights, in their order.
    pub weights: OfWeights<'a>,
}

/// A gradient of a weight, or of several.
pub enum Gradient {
    /// It itself.
    Made(Tensor),
    /// Those of so many weights as its first dim is long, in a row, one behind the other.
    Stacked(Tensor),
    /// What makes it: gradients of outputs `[tokens, outputs]`, whose product with the inputs `[tokens, inputs]` has this shape.
    Product {
        /// Gradients of outputs.
        of_outputs: Tensor,
        /// Inputs.
        inputs: Tensor,
        /// The weight's.
        shape: Vec<i64>,
    },
}

impl Gradient {
    /// Of how many weights it is.
    pub fn parameters(&self) -> usize {
        match self {
            Gradient::Made(_) | Gradient::Product { .. } => 1,
            Gradient::Stacked(all) => all.size().first().map_or(0, |&count| count as usize),
        }
    }

    /// The gradient of each weight. What it was made of is given back.
    ///
    /// # Errors
    /// When libtorch fails.
    pub fn make(self) -> anyhow::Result<Vec<Tensor>> {
        Ok(match self {
            Gradient::Made(made) => vec![made],
            Gradient::Stacked(all) => all.f_unbind(0)?,
            Gradient::Product { of_outputs, inputs, shape } => {
                vec![of_outputs.f_tr()?.f_matmul(&inputs)?.f_view(shape.as_slice())?]
            }
        })
    }
}

impl From<Tensor> for Gradient {
    fn from(made: Tensor) -> Gradient {
        Gradient::Made(made)
    }
}

/// Makes gradients of weights, or what makes them.
pub type MakeWeightGradients<'a> = Box<dyn FnOnce() -> anyhow::Result<Vec<Gradient>> + 'a>;

/// Gradients of a function's weights.
pub enum OfWeights<'a> {
    /// Made with those of the inputs.
    Made(Vec<Tensor>),
    /// Can wait, as what is large does: called at once in a whole backward, later in a split one.
    Later(MakeWeightGradients<'a>),
}

/// A function's backward: from the gradient of its output.
pub type Backward<'a> = Box<dyn FnOnce(Tensor) -> anyhow::Result<Gradients<'a>> + 'a>;

/// What a checkpoint runs, forward and again in backward.
type Replay<'a> = Box<dyn Fn(&mut Tape<'a>, Vec<Flow>) -> anyhow::Result<Flow> + 'a>;

enum Node<'a> {
    Segment {
        /// Without data: only their place in libtorch's graph is needed. So are the outputs.
        inputs: Vec<(usize, Tensor)>,
        weights: Vec<(usize, Tensor)>,
        output: (usize, Tensor),
    },
    Function {
        inputs: Vec<usize>,
        weights: Vec<usize>,
        output: usize,
        backward: Backward<'a>,
    },
    Checkpoint {
        inputs: Vec<(usize, Kept<'a>)>,
        output: usize,
        run: Replay<'a>,
    },
    Exchange {
        exchange: Exchange,
        input: usize,
        output: usize,
    },
    Add {
        inputs: [usize; 2],
        output: usize,
    },
    /// Where the forward of a section began: its backward is done.
    Enter(Section),
    /// Where it ended: its backward begins.
    Leave(Section),
}

/// Where a micro batch stands with a section of the model, whose weights may be there for that time alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// Its forward begins.
    BeforeForward,
    /// Its forward is done.
    AfterForward,
    /// Its backward begins.
    BeforeBackward,
    /// Its backward is done, all of its gradients are there.
    AfterBackward,
    /// Its backward is done but for the gradients of weights, which are put off.
    AfterInputs,
    /// Those are there.
    AfterWeights,
}

/// Weights as the tape sees them.
pub trait Weights {
    /// A leaf that shares memory with the parameter's slice.
    fn leaf(&self, parameter: usize) -> Tensor;

    /// Adds to the main gradients of these parameters, in their order.
    ///
    /// # Errors
    /// When shapes don't fit.
    fn add_gradients(&self, parameters: &[usize], gradients: Vec<Gradient>) -> anyhow::Result<()>;

    /// Whether gradients of a section's weights are wanted together: a split backward then puts all of them off.
    fn gathers_gradients(&self) -> bool;

    /// Hears where a micro batch stands. Sections can be entered within each other, and several times.
    ///
    /// # Errors
    /// When what has to be done then fails.
    fn at(&self, moment: Moment, section: Section, world: &dyn Collectives) -> anyhow::Result<()>;
}

/// What a tape is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Forward, to be followed by backward.
    Record,
    /// Forward of a checkpoint: nothing is kept.
    Forget,
    /// Forward again, in backward.
    Replay,
    /// Forward without a backward, for the loss alone.
    Evaluate,
}

/// The tape of one micro batch on one model chunk.
pub struct Tape<'a> {
    group: TensorParallel<'a>,
    weights: &'a dyn Weights,
    nodes: Vec<Node<'a>>,
    gradients: Vec<Option<Tensor>>,
    forgotten: BTreeMap<usize, Again<'a>>,
    mode: Mode,
}

impl<'a> Tape<'a> {
    /// An empty tape.
    pub fn new(group: TensorParallel<'a>, weights: &'a dyn Weights) -> Tape<'a> {
        Tape::with_mode(group, weights, Mode::Record)
    }

    /// A tape that keeps nothing: for a loss that nobody trains on.
    pub fn evaluating(group: TensorParallel<'a>, weights: &'a dyn Weights) -> Tape<'a> {
        Tape::with_mode(group, weights, Mode::Evaluate)
    }

    fn with_mode(group: TensorParallel<'a>, weights: &'a dyn Weights, mode: Mode) -> Tape<'a> {
        Tape { group, weights, nodes: Vec::new(), gradients: Vec::new(), forgotten: BTreeMap::new(), mode }
    }

    fn flow(&mut self, data: Tensor) -> Flow {
        self.gradients.push(None);
        Flow { id: self.gradients.len() - 1, data }
    }

    /// Whether a backward follows, for which something must be kept.
    fn keeps(&self) -> bool {
        matches!(self.mode, Mode::Record | Mode::Replay)
    }

    fn push(&mut self, node: Node<'a>) {
        if self.keeps() {
            self.nodes.push(node);
        }
    }

    /// Begins the forward of a section of the model, whose weights are used until [`Tape::leave`]. Not within a checkpoint, which
    /// runs again while the section's backward is under way.
    ///
    /// # Errors
    /// When its weights can't be had.
    pub fn enter(&mut self, section: Section) -> anyhow::Result<()> {
        self.weights.at(Moment::BeforeForward, section, self.group.world)?;
        self.push(Node::Enter(section));
        Ok(())
    }

    /// Ends it.
    ///
    /// # Errors
    /// When its weights can't be given back.
    pub fn leave(&mut self, section: Section) -> anyhow::Result<()> {
        self.push(Node::Leave(section));
        self.weights.at(Moment::AfterForward, section, self.group.world)
    }

    /// A value from elsewhere, such as another stage; backward gives its gradient.
    pub fn input(&mut self, data: Tensor) -> Flow {
        self.flow(data)
    }

    /// Whether this forward happens again, in backward: what counts tokens must not count them twice.
    pub fn is_replay(&self) -> bool {
        self.mode == Mode::Replay
    }

    /// Whether nobody trains on this forward: what follows the tokens must not follow these.
    pub fn evaluates(&self) -> bool {
        self.mode == Mode::Evaluate
    }

    /// Runs `compute` on detached inputs and the named weights, recorded by libtorch.
    ///
    /// # Errors
    /// When `compute` fails.
    pub fn segment(
        &mut self,
        inputs: &[&Flow],
        weights: &[usize],
        compute: impl FnOnce(&[Tensor], &[Tensor]) -> anyhow::Result<Tensor>,
    ) -> anyhow::Result<Flow> {
        let parameters: Vec<Tensor> = weights.iter().map(|&weight| self.weights.leaf(weight)).collect();
        if !self.keeps() {
            let views = inputs
                .iter()
                .map(|input| input.data.f_view_as(&input.data))
                .collect::<Result<Vec<_>, _>>()?;
            let result = no_grad(|| compute(&views, &parameters))?;
            return Ok(self.flow(result));
        }
        let mut leaves = Vec::with_capacity(inputs.len());
        for input in inputs {
            leaves.push(input.data.f_detach()?.f_set_requires_grad(true)?);
        }
        let mut result = with_grad(|| {
            // Views, so that libtorch never keeps a leaf itself, whose data is given up below.
            let views = leaves.iter().map(|leaf| leaf.f_view_as(leaf)).collect::<Result<Vec<_>, _>>()?;
            compute(&views, &parameters)
        })?;
        let output = self.flow(result.f_detach()?);
        hollow(&mut result)?;
        for leaf in &mut leaves {
            hollow(leaf)?;
        }
        let inputs = inputs.iter().map(|input| input.id).zip(leaves).collect();
        let weights = weights.iter().copied().zip(parameters).collect();
        self.push(Node::Segment { inputs, weights, output: (output.id, result) });
        Ok(output)
    }

    /// A weight's data.
    pub fn weight(&self, parameter: usize) -> Tensor {
        self.weights.leaf(parameter)
    }

    /// The tensor-parallel group.
    pub fn group(&self) -> TensorParallel<'a> {
        self.group
    }

    /// A value as a function keeps it for its backward.
    pub fn keep(&self, value: &Flow) -> Kept<'a> {
        match self.forgotten.get(&value.id) {
            Some(again) => Kept::Again(again.clone()),
            None => Kept::Data(value.data.shallow_clone()),
        }
    }

    /// Lets those who keep `value` from now on keep `again` instead, which makes it when backward needs it.
    pub fn forget(&mut self, value: &Flow, again: impl Fn() -> anyhow::Result<Tensor> + 'a) {
        if self.keeps() {
            self.forgotten.insert(value.id, Rc::new(again));
        }
    }

    /// Records a value that was computed from `inputs` and `weights`, with its backward.
    pub fn function(
        &mut self,
        inputs: &[&Flow],
        weights: &[usize],
        data: Tensor,
        backward: Backward<'a>,
    ) -> Flow {
        let output = self.flow(data);
        let inputs = inputs.iter().map(|input| input.id).collect();
        self.push(Node::Function { inputs, weights: weights.to_vec(), output: output.id, backward });
        output
    }

    /// Runs `run` on `inputs` and keeps these alone; backward runs it again. `run` must give the same each time.
    ///
    /// # Errors
    /// When `run` fails.
    pub fn checkpoint(
        &mut self,
        inputs: &[&Flow],
        run: impl Fn(&mut Tape<'a>, Vec<Flow>) -> anyhow::Result<Flow> + 'a,
    ) -> anyhow::Result<Flow> {
        let kept = inputs.iter().map(|input| (input.id, self.keep(input))).collect();
        let mode = if self.evaluates() { Mode::Evaluate } else { Mode::Forget };
        let mut scratch = Tape::with_mode(self.group, self.weights, mode);
        let starts = inputs.iter().map(|input| scratch.flow(input.data.shallow_clone())).collect();
        let result = run(&mut scratch, starts)?;
        let output = self.flow(result.data);
        self.push(Node::Checkpoint { inputs: kept, output: output.id, run: Box::new(run) });
        Ok(output)
    }

    /// Passes a value through the tensor-parallel group.
    ///
    /// # Errors
    /// When the collective fails.
    pub fn exchange(&mut self, exchange: Exchange, input: Flow) -> anyhow::Result<Flow> {
        if self.group.size() == 1 {
            return Ok(input);
        }
        let data = match exchange {
            Exchange::SumScatter => self.group.sum_scatter(&input.data)?,
            Exchange::Sum => self.group.sum(&input.data)?,
        };
        let output = self.flow(data);
        self.push(Node::Exchange { exchange, input: input.id, output: output.id });
        Ok(output)
    }

    /// The sum of two values.
    ///
    /// # Errors
    /// When shapes don't fit.
    pub fn add(&mut self, first: &Flow, second: &Flow) -> anyhow::Result<Flow> {
        let data = no_grad(|| first.data.f_add(&second.data))?;
        let output = self.flow(data);
        self.push(Node::Add { inputs: [first.id, second.id], output: output.id });
        Ok(output)
    }

    /// Gives the gradient of the loss with respect to a value.
    pub fn seed(&mut self, value: Place, gradient: Tensor) {
        self.gradients[value.0] = Some(gradient);
    }
}

/// Takes a tensor's data away and leaves its place in libtorch's graph.
fn hollow(tensor: &mut Tensor) -> anyhow::Result<()> {
    tensor.f_set_data(&Tensor::f_empty([0], (tensor.kind(), tensor.device()))?)?;
    Ok(())
}
