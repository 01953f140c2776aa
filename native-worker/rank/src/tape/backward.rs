//! The tape, last node first.

use anyhow::Context;
use tch::{Tensor, no_grad};

use planner::shard::fsdp::Section;

use super::{
    Exchange, Gradient, Gradients, MakeWeightGradients, Mode, Moment, Node, OfWeights, Place, Tape, Weights,
};
use crate::collectives::Collectives;
use crate::sys;

/// Weight gradients that a split backward put off.
pub struct Deferred<'a> {
    weights: &'a dyn Weights,
    world: &'a dyn Collectives,
    tasks: Vec<Task<'a>>,
}

enum Task<'a> {
    /// Makes gradients of these weights.
    Make(Vec<usize>, MakeWeightGradients<'a>),
    /// All of a section's are there.
    Done(Section),
}

impl Deferred<'_> {
    /// Makes them and adds them to the main gradients.
    ///
    /// # Errors
    /// When libtorch or a collective fails.
    pub fn run(self) -> anyhow::Result<()> {
        for task in self.tasks {
            match task {
                Task::Make(parameters, make) => self.weights.add_gradients(&parameters, make()?)?,
                Task::Done(section) => self.weights.at(Moment::AfterWeights, section, self.world)?,
            }
        }
        Ok(())
    }
}

impl<'a> Deferred<'a> {
    /// Puts off gradients that are there already.
    fn keep(&mut self, parameters: Vec<usize>, made: Vec<Tensor>) {
        if !parameters.is_empty() {
            self.tasks.push(Task::Make(parameters, Box::new(move || Ok(self::made(made)))));
        }
    }
}

/// Gradients that are there.
fn made(gradients: Vec<Tensor>) -> Vec<Gradient> {
    gradients.into_iter().map(Gradient::Made).collect()
}

impl<'a> Tape<'a> {
    /// Runs backward over everything recorded, last first; nodes are dropped on the way. Gives the gradient of `input`.
    ///
    /// # Errors
    /// When libtorch or a collective fails.
    pub fn backward(self, input: Option<Place>) -> anyhow::Result<Option<Tensor>> {
        Ok(self.run(&Vec::from_iter(input), None)?.into_iter().next().flatten())
    }

    /// The same without the weight gradients that can wait, which are put off.
    ///
    /// # Errors
    /// When libtorch or a collective fails.
    pub fn backward_input(self, input: Option<Place>) -> anyhow::Result<(Option<Tensor>, Deferred<'a>)> {
        let (weights, world) = (self.weights, self.group.world);
        let mut deferred = Deferred { weights, world, tasks: Vec::new() };
        let gradients = self.run(&Vec::from_iter(input), Some(&mut deferred))?;
        Ok((gradients.into_iter().next().flatten(), deferred))
    }

    /// Gives the gradients of `inputs`.
    fn run(
        mut self,
        inputs: &[Place],
        mut deferred: Option<&mut Deferred<'a>>,
    ) -> anyhow::Result<Vec<Option<Tensor>>> {
        let wanted = inputs;
        self.forgotten.clear();
        while let Some(node) = self.nodes.pop() {
            match node {
                Node::Segment { inputs, weights, output } => {
                    if let Some(gradient) = self.gradients[output.0].take() {
                        match &mut deferred {
                            // Nothing waits for it but weights.
                            Some(deferred) if inputs.is_empty() => {
                                deferred.tasks.push(segment_weights(weights, output.1, gradient));
                            }
                            Some(deferred) if self.weights.gathers_gradients() => {
                                let parameters = weights.iter().map(|(parameter, _)| *parameter).collect();
                                let made = self.segment_backward(&inputs, &weights, output.1, gradient)?;
                                deferred.keep(parameters, made);
                            }
                            _ => {
                                let made = self.segment_backward(&inputs, &weights, output.1, gradient)?;
                                let parameters: Vec<usize> =
                                    weights.iter().map(|(parameter, _)| *parameter).collect();
                                self.weights.add_gradients(&parameters, self::made(made))?;
                            }
                        }
                    }
                }
                Node::Function { inputs, weights, output, backward } => {
                    if let Some(gradient) = self.gradients[output].take() {
                        let Gradients { inputs: of_inputs, weights: of_weights } = backward(gradient)?;
                        for (id, gradient) in inputs.into_iter().zip(of_inputs) {
                            self.accumulate(id, gradient)?;
                        }
                        match (of_weights, &mut deferred) {
                            (OfWeights::Made(made), Some(deferred)) if self.weights.gathers_gradients() => {
                                deferred.keep(weights, made);
                            }
                            (OfWeights::Made(made), _) => {
                                self.weights.add_gradients(&weights, self::made(made))?;
                            }
                            (OfWeights::Later(make), None) => {
                                self.weights.add_gradients(&weights, make()?)?;
                            }
                            (OfWeights::Later(make), Some(deferred)) => {
                                deferred.tasks.push(Task::Make(weights, make));
                            }
                        }
                    }
                }
                Node::Checkpoint { inputs, output, run } => {
                    if let Some(gradient) = self.gradients[output].take() {
                        let mut again = Tape::with_mode(self.group, self.weights, Mode::Replay);
                        let mut starts = Vec::with_capacity(inputs.len());
                        for (_, kept) in &inputs {
                            starts.push(again.flow(kept.get()?));
                        }
                        let places: Vec<Place> = starts.iter().map(super::Flow::place).collect();
                        let result = run(&mut again, starts)?.place();
                        again.seed(result, gradient);
                        let found = again.run(&places, deferred.as_deref_mut())?;
                        for ((id, _), gradient) in inputs.iter().zip(found) {
                            if let Some(gradient) = gradient {
                                self.accumulate(*id, gradient)?;
                            }
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
                Node::Leave(section) => {
                    self.weights.at(Moment::BeforeBackward, section, self.group.world)?;
                }
                Node::Enter(section) => {
                    let moment = match &mut deferred {
                        Some(deferred) => {
                            deferred.tasks.push(Task::Done(section));
                            Moment::AfterInputs
                        }
                        None => Moment::AfterBackward,
                    };
                    self.weights.at(moment, section, self.group.world)?;
                }
                Node::Add { inputs, output } => {
                    if let Some(gradient) = self.gradients[output].take() {
                        self.accumulate(inputs[0], gradient.shallow_clone())?;
                        self.accumulate(inputs[1], gradient)?;
                    }
                }
            }
        }
        Ok(wanted.iter().map(|place| self.gradients[place.0].take()).collect())
    }

    /// Gives the gradients of its weights.
    fn segment_backward(
        &mut self,
        inputs: &[(usize, Tensor)],
        weights: &[(usize, Tensor)],
        output: Tensor,
        gradient: Tensor,
    ) -> anyhow::Result<Vec<Tensor>> {
        let leaves: Vec<&Tensor> = inputs.iter().chain(weights).map(|(_, leaf)| leaf).collect();
        let mut found = sys::gradients(&[&output], &[&gradient], &leaves)?.into_iter();
        for (id, _) in inputs {
            if let Some(gradient) = found.next().flatten() {
                self.accumulate(*id, gradient)?;
            }
        }
        found.map(|gradient| gradient.context("a weight that its segment does not use")).collect()
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

/// Weight gradients of a segment without inputs, put off.
fn segment_weights<'a>(weights: Vec<(usize, Tensor)>, output: Tensor, gradient: Tensor) -> Task<'a> {
    let (parameters, leaves): (Vec<usize>, Vec<Tensor>) = weights.into_iter().unzip();
    let make = move || {
        let leaves: Vec<&Tensor> = leaves.iter().collect();
        let found = sys::gradients(&[&output], &[&gradient], &leaves)?;
        let found = found.into_iter();
        found.map(|gradient| Ok(gradient.context("a weight that its segment does not use")?.into())).collect()
    };
    Task::Make(parameters, Box::new(make))
}
