//! The explicit tape: compute between collectives, backward in reverse.
//!
//! A segment is recorded by libtorch and sees only detached inputs, so libtorch's graph never crosses a collective. A
//! function brings its own backward and keeps what it says, where libtorch would keep more. Values that others need
//! are kept by whoever needs them. Gradients of weights go into the main gradient buffers as soon as they are there,
//! and are dropped.

use anyhow::Context;
use tch::{Tensor, no_grad, with_grad};

use crate::collectives::{Collectives, GroupId, Reduce};
use crate::sys;

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

/// Gradients of a function's inputs, and of its weights.
pub type Gradients = (Vec<Tensor>, Vec<Tensor>);

/// A function's backward: from the gradient of its output.
pub type Backward<'a> = Box<dyn FnOnce(Tensor) -> anyhow::Result<Gradients> + 'a>;

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
    Exchange {
        exchange: Exchange,
        input: usize,
        output: usize,
    },
    Add {
        inputs: [usize; 2],
        output: usize,
    },
}

/// Weights as the tape sees them.
pub trait Weights {
    /// A leaf that shares memory with the parameter's slice.
    fn leaf(&self, parameter: usize) -> Tensor;

    /// Adds to the parameter's main gradient.
    ///
    /// # Errors
    /// When shapes don't fit.
    fn add_gradient(&self, parameter: usize, gradient: &Tensor) -> anyhow::Result<()>;
}

/// The tape of one micro batch.
pub struct Tape<'a> {
    group: TensorParallel<'a>,
    weights: &'a dyn Weights,
    nodes: Vec<Node<'a>>,
    gradients: Vec<Option<Tensor>>,
}

impl<'a> Tape<'a> {
    /// An empty tape.
    pub fn new(group: TensorParallel<'a>, weights: &'a dyn Weights) -> Tape<'a> {
        Tape { group, weights, nodes: Vec::new(), gradients: Vec::new() }
    }

    fn flow(&mut self, data: Tensor) -> Flow {
        self.gradients.push(None);
        Flow { id: self.gradients.len() - 1, data }
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
        let mut leaves = Vec::with_capacity(inputs.len());
        for input in inputs {
            leaves.push(input.data.f_detach()?.f_set_requires_grad(true)?);
        }
        let parameters: Vec<Tensor> = weights.iter().map(|&weight| self.weights.leaf(weight)).collect();
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
        self.nodes.push(Node::Segment { inputs, weights, output: (output.id, result) });
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
        self.nodes.push(Node::Function { inputs, weights: weights.to_vec(), output: output.id, backward });
        output
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
        self.nodes.push(Node::Exchange { exchange, input: input.id, output: output.id });
        Ok(output)
    }

    /// The sum of two values.
    ///
    /// # Errors
    /// When shapes don't fit.
    pub fn add(&mut self, first: &Flow, second: &Flow) -> anyhow::Result<Flow> {
        let data = no_grad(|| first.data.f_add(&second.data))?;
        let output = self.flow(data);
        self.nodes.push(Node::Add { inputs: [first.id, second.id], output: output.id });
        Ok(output)
    }

    /// Gives the gradient of the loss with respect to a value.
    pub fn seed(&mut self, value: Place, gradient: Tensor) {
        self.gradients[value.0] = Some(gradient);
    }

    /// Runs backward over everything recorded, last first; nodes are dropped on the way.
    ///
    /// # Errors
    /// When libtorch or a collective fails.
    pub fn backward(mut self) -> anyhow::Result<()> {
        while let Some(node) = self.nodes.pop() {
            match node {
                Node::Segment { inputs, weights, output } => {
                    if let Some(gradient) = self.gradients[output.0].take() {
                        self.segment_backward(inputs, weights, output.1, gradient)?;
                    }
                }
                Node::Function { inputs, weights, output, backward } => {
                    if let Some(gradient) = self.gradients[output].take() {
                        let (of_inputs, of_weights) = backward(gradient)?;
                        for (id, gradient) in inputs.into_iter().zip(of_inputs) {
                            self.accumulate(id, gradient)?;
                        }
                        for (parameter, gradient) in weights.iter().zip(&of_weights) {
                            self.weights.add_gradient(*parameter, gradient)?;
                        }
                    }
                }
                Node::Exchange { exchange, input, output } => {
                    if let Some(gradient) = self.gradients[output].take() {
                        let gradient = match exchange {
                            Exchange::SumScatter => self.group.gather(&gradient)?,
                            Exchange::Sum => gradient,
                        };
                        self.accumulate(input, gradient)?;
                    }
                }
                Node::Add { inputs, output } => {
                    if let Some(gradient) = self.gradients[output].take() {
                        self.accumulate(inputs[0], gradient.shallow_clone())?;
                        self.accumulate(inputs[1], gradient)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn segment_backward(
        &mut self,
        inputs: Vec<(usize, Tensor)>,
        weights: Vec<(usize, Tensor)>,
        output: Tensor,
        gradient: Tensor,
    ) -> anyhow::Result<()> {
        let leaves: Vec<&Tensor> = inputs.iter().chain(&weights).map(|(_, leaf)| leaf).collect();
        let mut found = sys::gradients(&[&output], &[&gradient], &leaves)?.into_iter();
        for (id, _) in &inputs {
            if let Some(gradient) = found.next().flatten() {
                self.accumulate(*id, gradient)?;
            }
        }
        for (parameter, _) in &weights {
            if let Some(gradient) = found.next().flatten() {
                self.weights.add_gradient(*parameter, &gradient)?;
            }
        }
        Ok(())
    }

    /// Never in place: an addition's gradient is shared by its two inputs.
    fn accumulate(&mut self, id: usize, gradient: Tensor) -> anyhow::Result<()> {
        let slot = self.gradients.get_mut(id).context("a value that is not on the tape")?;
        *slot = Some(match slot.take() {
            None => gradient,
            Some(sum) => no_grad(|| sum.f_add(&gradient))?,
        });
        Ok(())
    }
}

/// Takes a tensor's data away and leaves its place in libtorch's graph.
fn hollow(tensor: &mut Tensor) -> anyhow::Result<()> {
    tensor.f_set_data(&Tensor::f_empty([0], (tensor.kind(), tensor.device()))?)?;
    Ok(())
}

/// The tensor-parallel group and what it does with values whose first dim is the sequence.
#[derive(Clone, Copy)]
pub struct TensorParallel<'a> {
    /// The world.
    pub world: &'a dyn Collectives,
    /// The group.
    pub group: GroupId,
}

impl TensorParallel<'_> {
    /// Members.
    pub fn size(&self) -> usize {
        self.world.size(self.group)
    }

    fn sized_like(&self, tensor: &Tensor, first: i64) -> anyhow::Result<Tensor> {
        let mut size = tensor.size();
        size[0] = first;
        Ok(Tensor::f_empty(&size, (tensor.kind(), tensor.device()))?)
    }

    /// Joins the members' slices of the sequence.
    ///
    /// # Errors
    /// When the collective fails.
    pub fn gather(&self, slice: &Tensor) -> anyhow::Result<Tensor> {
        let mut whole = self.sized_like(slice, slice.size()[0] * self.size() as i64)?;
        self.world.all_gather(self.group, &slice.f_contiguous()?, &mut whole)?;
        Ok(whole)
    }

    /// Sums over the members and keeps this one's slice of the sequence.
    ///
    /// # Errors
    /// When the collective fails.
    pub fn sum_scatter(&self, whole: &Tensor) -> anyhow::Result<Tensor> {
        let mut slice = self.sized_like(whole, whole.size()[0] / self.size() as i64)?;
        self.world.reduce_scatter(self.group, &whole.f_contiguous()?, &mut slice)?;
        Ok(slice)
    }

    /// Sums over the members, into a new tensor.
    ///
    /// # Errors
    /// When the collective fails.
    pub fn sum(&self, part: &Tensor) -> anyhow::Result<Tensor> {
        let mut whole = self.sized_like(part, part.size()[0])?;
        whole.f_copy_(part)?;
        self.world.all_reduce(self.group, Reduce::Sum, &mut whole)?;
        Ok(whole)
    }
}
