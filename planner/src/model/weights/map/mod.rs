//! Where the elements of planned parameters lie in the tensors of a Hugging Face model folder.
//!
//! The map is made of config.json, the architecture and, where files are read, the names and shapes of their tensors; it says
//! of every parameter in which tensors its elements are and in which order, for reading and writing alike. `names.txt` is what
//! model types call their tensors; what stands there for no model type is refused.

mod dims;
mod files;
mod merge;
mod parameters;
mod runs;
mod storage;
mod table;
#[cfg(test)]
mod tests;

pub use parameters::whole_parameters;
pub use runs::{Run, runs};

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::finding::Finding;
use crate::model::Architecture;
use files::Names;

/// Names of the tensors of a model folder, each with its shape.
pub type Present = BTreeMap<String, Vec<u64>>;

/// Where all parameters of a model lie in its files.
#[derive(Debug, Clone, PartialEq)]
pub struct WeightMap {
    /// Every parameter of the whole model, in the order of the forward pass.
    pub parameters: Vec<Mapped>,
    /// Balancing biases of routers, which no gradient trains and no parameter holds: a router's name, such as
    /// `layers.3.moe.router`, and the tensor of its bias.
    pub router_biases: Vec<(String, String)>,
    /// Tensors of the files' decoder that belong to nothing planned. What reads images or sound, prediction modules that are
    /// not planned, and copies of tied embeddings are left out.
    pub unused: Vec<String>,
    /// Where embeddings are tied: the tensor of the embedding, and the name of the output layer, which is the same tensor in a
    /// model's state and has no copy in its files.
    pub tied: Option<(String, String)>,
}

impl WeightMap {
    /// Tensors that parameters are in, each once with its shape, in the order of their names: what a folder of the model has
    /// besides balancing biases.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, &[u64])> {
        let parts = self.parameters.iter().flat_map(|mapped| &mapped.parts);
        let tensors: BTreeMap<&str, &[u64]> =
            parts.map(|part| (part.tensor.as_str(), part.hf_shape.as_slice())).collect();
        tensors.into_iter()
    }
}

/// Where one whole parameter lies.
#[derive(Debug, Clone, PartialEq)]
pub struct Mapped {
    /// Its name, as `ParamShard` has it.
    pub name: String,
    /// Its whole shape, the vocabulary not padded.
    pub shape: Vec<u64>,
    /// Boxes that partition it.
    pub parts: Vec<BoxPart>,
}

/// A box of a parameter, and where its elements are in a tensor.
///
/// Element `i` of the box (an index of each dim, from the box's first) is element `base + sum of i * strides` of the tensor in
/// row-major order, and the parameter's value is that element's and `add`.
#[derive(Debug, Clone, PartialEq)]
pub struct BoxPart {
    /// The tensor's name in the files.
    pub tensor: String,
    /// The tensor's shape; of packed elements, the shape that unpacking gives.
    pub hf_shape: Vec<u64>,
    /// First index of the box in each dim of the parameter.
    pub offset: Vec<u64>,
    /// Extent of the box in each dim.
    pub extent: Vec<u64>,
    /// Element of the tensor that is the box's first.
    pub base: u64,
    /// Elements of the tensor from one index of each dim to the next.
    pub strides: Vec<u64>,
    /// What is added to what is read, and taken from what is written: 1 where norms are kept as their distance from 1.
    pub add: f64,
    /// How the tensor keeps its elements.
    pub storage: Storage,
}

/// How a tensor keeps its elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Storage {
    /// One by one, in the type that the file says.
    Plain,
    /// As 8-bit floats, with a factor for each block of a matrix in another tensor (DeepSeek-V3's `weight_scale_inv`).
    Fp8Blocks {
        /// The tensor of the factors, one for each block.
        scales: String,
        /// Rows and columns of a block.
        block: [u64; 2],
    },
    /// As 4-bit floats, two to a byte, with a power of two for each 32 (gpt-oss).
    Mxfp4 {
        /// The tensor of the exponents.
        scales: String,
    },
}

const FIELD: &str = "model.weights";

fn refused(value: impl Into<Value>, message: String) -> Box<Finding> {
    Box::new(Finding::error(FIELD, value, message).rule("tensors of Hugging Face models that are mapped"))
}

/// The map of a model that config.json describes. `present` is what its files have, by which the way is chosen in which they
/// keep each parameter; without it the map is of what a publisher of that model type would write.
///
/// # Errors
/// A finding that names the model type or the parameter that no rule is for, or the tensor that is missing or of another shape.
pub fn hf_tensors(
    model: &Architecture,
    config: &Map<String, Value>,
    present: Option<&Present>,
) -> Result<WeightMap, Box<Finding>> {
    let names = Names::of(model, config, present)?;
    let mut parameters = Vec::new();
    for parameter in parameters::listed(model)? {
        parameters.push(names.map(&parameter)?);
    }
    let router_biases = names.router_biases()?;
    let unused = names.unused(&parameters, &router_biases);
    let tied = names.tied(&parameters);
    Ok(WeightMap { parameters, router_biases, unused, tied })
}
