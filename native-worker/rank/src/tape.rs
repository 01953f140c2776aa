//! The explicit tape: compute segments that libtorch records, collectives between them, backward in reverse.
//!
//! A segment sees only detached inputs, so libtorch's graph never crosses a collective. What a segment keeps for
//! backward is what libtorch saved, no more: outputs that others need are kept by whoever needs them. Gradients of
//! weights go into the main gradient buffers as soon as a segment's backward is done, and are dropped.

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
}

/// What ranks of the tensor-parallel group do with a value on the way to the next segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exchange {
    /// Forward: join the slices of the sequence. Backward: sum and keep one's own slice.
    Gather,
    /// Forward: sum and keep one's own slice of the sequence. Backward: join the slices.
    SumScatter,
    /// Forward: nothing. Backward: sum.
    Copy,
    /// Forward: sum. Backward: nothing.
    Sum,
}

enum Node {
    Segment {
        inputs: Vec<(usize, Tensor)>,
        weights: Vec<(usize, Tensor)>,
        /// Without data: only their place in libtorch's graph is needed.
        outputs: Vec<(usize, Tensor)>,
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
    world: &'a dyn Collectives,
    tp: GroupId,
    weights: &'a dyn Weights,
    nodes: Vec<Node>,
    gradients: Vec<Option<Tensor>>,
}

impl<'a> Tape<'a> {
    /// An empty tape.
    pub fn new(world: &'a dyn Collectives, tp: GroupId, weights: &'a dyn Weights) -> Tape<'a> {
        Tape { world, tp, weights, nodes: Vec::new(), gradients: Vec::new() }
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
        let leaves: Vec<Tensor> = inputs
            .iter()
            .map(|input| anyhow::Ok(input.data.f_detach()?.f_set_requires_grad(true)?))
            .collect::<Result<_, _>>()?;
        let parameters: Vec<Tensor> = weights.iter().map(|&weight| self.weights.leaf(weight)).collect();
        let mut result = with_grad(|| compute(&leaves, &parameters))?;
        let output = self.flow(result.f_detach()?);
        // The output's storage belongs to the flow; the node keeps the place in the graph with an empty one.
        result.f_set_data(&Tensor::f_empty([0], (result.kind(), result.device()))?)?;
        let inputs = inputs.iter().map(|input| input.id).zip(leaves).collect();
        let weights = weights.iter().copied().zip(parameters).collect();
        self.nodes.push(Node::Segment { inputs, weights, outputs: vec![(output.id, result)] });
        Ok(output)
    }

    /// Passes a value through the tensor-parallel group.
    ///
    /// # Errors
    /// When the collective fails.
    pub fn exchange(&mut self, exchange: Exchange, input: Flow) -> anyhow::Result<Flow> {
        if self.world.size(self.tp) == 1 {
            return Ok(input);
        }
        let data = self.forward(exchange, input.data)?;
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
    pub fn seed(&mut self, value: &Flow, gradient: Tensor) {
        self.gradients[value.id] = Some(gradient);
    }

    /// Runs backward over everything recorded, last first; nodes are dropped on the way.
    ///
    /// # Errors
    /// When libtorch or a collective fails.
    pub fn backward(mut self) -> anyhow::Result<()> {
        while let Some(node) = self.nodes.pop() {
            match node {
                Node::Segment { inputs, weights, outputs } => {
                    self.segment_backward(inputs, weights, outputs)?
                }
                Node::Exchange { exchange, input, output } => {
                    if let Some(gradient) = self.gradients[output].take() {
                        let gradient = self.reverse(exchange, gradient)?;
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
        outputs: Vec<(usize, Tensor)>,
    ) -> anyhow::Result<()> {
        let seeded: Vec<(&Tensor, Tensor)> =
            outputs.iter().filter_map(|(id, tensor)| Some((tensor, self.gradients[*id].take()?))).collect();
        if seeded.is_empty() {
            return Ok(());
        }
        let ends: Vec<&Tensor> = seeded.iter().map(|(tensor, _)| *tensor).collect();
        let seeds: Vec<&Tensor> = seeded.iter().map(|(_, gradient)| gradient).collect();
        let leaves: Vec<&Tensor> = inputs.iter().chain(&weights).map(|(_, leaf)| leaf).collect();
        let mut found = sys::gradients(&ends, &seeds, &leaves)?.into_iter();
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

    fn forward(&self, exchange: Exchange, data: Tensor) -> anyhow::Result<Tensor> {
        match exchange {
            Exchange::Gather => self.gather(&data),
            Exchange::SumScatter => self.sum_scatter(&data),
            Exchange::Copy => Ok(data),
            Exchange::Sum => self.sum(data),
        }
    }

    fn reverse(&self, exchange: Exchange, gradient: Tensor) -> anyhow::Result<Tensor> {
        match exchange {
            Exchange::Gather => self.sum_scatter(&gradient),
            Exchange::SumScatter => self.gather(&gradient),
            Exchange::Copy => self.sum(gradient),
            Exchange::Sum => Ok(gradient),
        }
    }

    fn sized_like(&self, tensor: &Tensor, first: i64) -> anyhow::Result<Tensor> {
        let mut size = tensor.size();
        size[0] = first;
        Ok(Tensor::f_empty(&size, (tensor.kind(), tensor.device()))?)
    }

    fn gather(&self, slice: &Tensor) -> anyhow::Result<Tensor> {
        let members = self.world.size(self.tp) as i64;
        let mut whole = self.sized_like(slice, slice.size()[0] * members)?;
        self.world.all_gather(self.tp, &slice.f_contiguous()?, &mut whole)?;
        Ok(whole)
    }

    fn sum_scatter(&self, whole: &Tensor) -> anyhow::Result<Tensor> {
        let members = self.world.size(self.tp) as i64;
        let mut slice = self.sized_like(whole, whole.size()[0] / members)?;
        self.world.reduce_scatter(self.tp, &whole.f_contiguous()?, &mut slice)?;
        Ok(slice)
    }

    /// A new tensor: the one given may be shared.
    fn sum(&self, part: Tensor) -> anyhow::Result<Tensor> {
        let mut whole = part.f_contiguous()?.copy();
        drop(part);
        self.world.all_reduce(self.tp, Reduce::Sum, &mut whole)?;
        Ok(whole)
    }
}
