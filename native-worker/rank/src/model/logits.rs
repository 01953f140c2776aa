//! What becomes of logits between the output matrix and the loss: a multiplier (Granite, Cohere), a soft cap (Gemma 2).

use tch::Tensor;

/// The architecture's rule: a multiplier, then cap c by c tanh(logit / c).
#[derive(Debug, Clone, Copy)]
pub struct LogitRule {
    /// What logits are multiplied by.
    pub multiplier: f64,
    /// Their cap; none for no cap.
    pub cap: Option<f64>,
}

/// What the gradient of logits needs of them.
pub struct Slopes {
    multiplier: f64,
    /// Tangents of capped logits.
    tangents: Option<Tensor>,
}

impl LogitRule {
    /// Applies it, in place but for a cap, which keeps a copy until backward.
    ///
    /// # Errors
    /// When libtorch fails.
    pub fn apply(&self, mut logits: Tensor) -> anyhow::Result<(Tensor, Slopes)> {
        let multiplier = self.multiplier;
        if multiplier != 1.0 {
            let _ = logits.f_mul_scalar_(multiplier)?;
        }
        let Some(cap) = self.cap else { return Ok((logits, Slopes { multiplier, tangents: None })) };
        let _ = logits.f_div_scalar_(cap)?;
        let _ = logits.f_tanh_()?;
        let capped = logits.f_mul_scalar(cap)?;
        Ok((capped, Slopes { multiplier, tangents: Some(logits) }))
    }
}

impl Slopes {
    /// The gradient of what the rule was given from that of what it made; in place.
    ///
    /// # Errors
    /// When libtorch fails.
    pub fn backward(self, mut gradient: Tensor) -> anyhow::Result<Tensor> {
        if let Some(mut tangents) = self.tangents {
            let _ = tangents.f_square_()?;
            let _ = tangents.f_neg_()?;
            let _ = tangents.f_add_scalar_(1.0)?;
            let _ = gradient.f_mul_(&tangents)?;
        }
        if self.multiplier != 1.0 {
            let _ = gradient.f_mul_scalar_(self.multiplier)?;
        }
        Ok(gradient)
    }
}
