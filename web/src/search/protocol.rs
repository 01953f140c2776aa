//! What the page and the workers of a search say to each other. Both modules compile this file.

use gloo::worker::Codec;
use planner::finding::Finding;
use planner::model::Architecture;
use planner::search::{Partial, Ranking, Request, Row, Scored, SearchAnswer, Simulated, WhyNot};
use serde::{Deserialize, Serialize};
use wasm_bindgen::JsValue;

/// Where the workers' module is, seen from the page.
#[allow(dead_code, reason = "the workers' module does not ask where it is")]
pub const ADDRESS: &str = "./searcher.js";

/// What a worker searches, which is sent without readers of models.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Sought {
    /// The search, as anywhere.
    pub request: Request,
    /// The architecture of its model, if it says but a name or a config.json.
    pub architecture: Option<Architecture>,
}

/// What the page asks of a worker. Every answer carries the number of the search it belongs to.
#[derive(Debug, Serialize, Deserialize)]
pub enum Ask {
    /// The page's data files, before anything else.
    Data(Vec<String>),
    /// Nothing yet, but a search is likely: make ready by one that nobody asked for.
    Warm(Box<Sought>),
    /// A new search; the one before is forgotten.
    Begin {
        /// Number of the search.
        number: u32,
        /// What is searched.
        sought: Box<Sought>,
    },
    /// Parts of the space, as many as a slice of time holds; without any, what was found and not told yet.
    Work {
        /// Number of the search.
        number: u32,
        /// First part.
        first: u64,
        /// One past the last.
        end: u64,
    },
    /// Candidates to simulate.
    Simulate {
        /// Number of the search.
        number: u32,
        /// Which.
        candidates: Vec<Scored>,
    },
    /// What was found so far, to be put together to an answer.
    Answer {
        /// Number of the search.
        number: u32,
        /// All that workers found.
        partial: Box<Partial>,
        /// All that was simulated.
        simulated: Vec<Simulated>,
        /// Whether that is everything.
        last: bool,
        /// Whether what would fit is to be in it, where nothing does.
        help: bool,
    },
    /// Why a plan is not the best.
    WhyNot {
        /// Number of the search.
        number: u32,
        /// The plan that somebody had in mind, as `tp=4,pp=2`.
        wanted: String,
        /// The best, where something fits.
        best: Option<Box<Row>>,
    },
}

/// What a worker answers.
#[derive(Debug, Serialize, Deserialize)]
pub enum Tell {
    /// A search is ready to be worked on.
    Begun {
        /// Number of the search.
        number: u32,
        /// Parts of its space.
        parts: u64,
        /// What merging needs.
        ranking: Box<Ranking>,
    },
    /// A search can't begin.
    Refused {
        /// Number of the search.
        number: u32,
        /// What is wrong with its request.
        findings: Vec<Finding>,
    },
    /// Some parts are done.
    Worked {
        /// Number of the search.
        number: u32,
        /// First part that is not done yet.
        next: u64,
        /// What was found since it was told last: now and then, and when no part is asked for.
        partial: Option<Box<Partial>>,
    },
    /// Steps of candidates.
    Simulated {
        /// Number of the search.
        number: u32,
        /// In the order of the question.
        found: Vec<Simulated>,
    },
    /// The answer.
    Answered {
        /// Number of the search.
        number: u32,
        /// Put together from what the question held.
        answer: Box<SearchAnswer>,
    },
    /// Why a plan is not the best, or what can't be read of it.
    WhyNot {
        /// Number of the search.
        number: u32,
        /// The sentence, or the reasons.
        found: Box<Result<WhyNot, String>>,
    },
}

impl Tell {
    /// Number of the search.
    #[allow(dead_code, reason = "only the page compares it")]
    pub fn number(&self) -> u32 {
        match self {
            Tell::Begun { number, .. }
            | Tell::Refused { number, .. }
            | Tell::Worked { number, .. }
            | Tell::Simulated { number, .. }
            | Tell::Answered { number, .. }
            | Tell::WhyNot { number, .. } => *number,
        }
    }
}

/// Messages as JSON: plan files leave out what is absent, which binary encodings can't read back.
#[derive(Debug)]
pub struct Json;

impl Codec for Json {
    fn encode<I: Serialize>(input: I) -> JsValue {
        // Plain data of ours, of which every value has a JSON form.
        JsValue::from_str(&serde_json::to_string(&input).unwrap_or_default())
    }

    #[allow(
        clippy::expect_used,
        reason = "the other side of the same file wrote it; the trait has no way to fail"
    )]
    fn decode<O: for<'de> Deserialize<'de>>(input: JsValue) -> O {
        planner::json::read_json(&input.as_string().unwrap_or_default())
            .expect("a message of this very protocol")
    }
}
