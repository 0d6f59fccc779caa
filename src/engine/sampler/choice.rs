//! How one token is chosen from the candidates that remain.

use super::candidates::Candidates;
use super::row::TokenCandidate;
use crate::api::Sampling;
use crate::engine::backend::TokenId;

/// The last sampler of a request, with its state.
#[derive(Debug)]
pub(super) enum Choice {
    /// The likeliest token; of equal ones, the first.
    Likeliest,
    /// A random token, by probability.
    Distribution,
    /// Mirostat 2.0: a random token, by probability, of those below a limit of surprise. The limit
    /// adapts to the chosen tokens.
    Mirostat(Mirostat),
    /// Adaptive-p: prefers tokens whose probability is near a target.
    AdaptiveP(AdaptiveP),
}

/// Mirostat, <https://arxiv.org/abs/2007.14966>, version 2 as in llama.cpp.
#[derive(Debug)]
pub(super) struct Mirostat {
    tau: f32,
    eta: f32,
    /// The current limit of surprise, in bits.
    mu: f32,
    /// The last drawn token and its surprise in bits.
    drawn: Option<(TokenId, f32)>,
}

/// Adaptive-p, <https://github.com/ggml-org/llama.cpp/pull/17927>.
#[derive(Debug)]
pub(super) struct AdaptiveP {
    target: f32,
    decay: f32,
    weighted_sum: f32,
    total_weight: f32,
    /// The last drawn token and its probability before the transformation.
    drawn: Option<(TokenId, f32)>,
    before: Vec<f32>,
}

impl Choice {
    pub(super) fn new(sampling: &Sampling) -> Choice {
        if sampling.temperature <= 0.0 {
            Choice::Likeliest
        } else if sampling.mirostat {
            let (tau, eta) = (sampling.mirostat_tau, sampling.mirostat_eta);
            Choice::Mirostat(Mirostat { tau, eta, mu: 2.0 * tau, drawn: None })
        } else if sampling.has_adaptive_p() {
            let (target, decay) = (sampling.adaptive_target, sampling.adaptive_decay);
            Choice::AdaptiveP(AdaptiveP {
                target,
                decay,
                weighted_sum: target / (1.0 - decay),
                total_weight: 1.0 / (1.0 - decay),
                drawn: None,
                before: Vec::new(),
            })
        } else {
            Choice::Distribution
        }
    }

    /// Sets the probabilities, and chooses a token by `share`, a random number from 0 to 1.
    pub(super) fn choose(&mut self, remaining: &mut Candidates, share: f64) -> Option<TokenId> {
        match self {
            Choice::Likeliest => remaining
                .list
                .iter()
                .min_by(|a, b| TokenCandidate::order(a, b))
                .map(|likeliest| likeliest.id),
            Choice::Distribution => {
                remaining.softmax_precisely();
                remaining.at(share).map(|drawn| drawn.id)
            }
            Choice::Mirostat(mirostat) => {
                remaining.at_most_surprising(mirostat.mu);
                remaining.softmax();
                let drawn = remaining.at(share)?;
                mirostat.drawn = Some((drawn.id, -drawn.p.log2()));
                Some(drawn.id)
            }
            Choice::AdaptiveP(adaptive) => adaptive.choose(remaining, share),
        }
    }

    /// Updates the state for a token of the reply.
    pub(super) fn accept(&mut self, token: TokenId) {
        match self {
            Choice::Likeliest | Choice::Distribution => {}
            Choice::Mirostat(mirostat) => {
                if let Some((_, surprise)) = mirostat.drawn.take().filter(|drawn| drawn.0 == token)
                {
                    mirostat.mu -= mirostat.eta * (surprise - mirostat.tau);
                }
            }
            Choice::AdaptiveP(adaptive) => {
                if let Some((_, p)) = adaptive.drawn.take().filter(|drawn| drawn.0 == token) {
                    adaptive.weighted_sum = p + adaptive.decay * adaptive.weighted_sum;
                    adaptive.total_weight = 1.0 + adaptive.decay * adaptive.total_weight;
                }
            }
        }
    }
}

impl AdaptiveP {
    fn choose(&mut self, remaining: &mut Candidates, share: f64) -> Option<TokenId> {
        /// llama.cpp's constants: the logit at the target, how fast it falls, and the width of the
        /// quadratic part.
        const PEAK: f64 = 5.0;
        const SHARPNESS: f64 = 10.0;
        const WIDTH: f64 = 0.3;
        let weights = remaining.weights();
        let adapted = 2.0 * self.target - self.weighted_sum / self.total_weight;
        let adapted = f64::from(adapted.clamp(0.0, 1.0));
        self.before.clear();
        for candidate in &mut remaining.list {
            let p = weights.probability(candidate);
            self.before.push(p as f32);
            // The sharpness amplifies errors, so this is in double precision.
            let distance = ((p - adapted) / WIDTH).abs();
            candidate.logit = (PEAK - SHARPNESS * distance * distance / (1.0 + distance)) as f32;
        }
        remaining.sorted = false;
        remaining.softmax_precisely();
        let drawn = remaining.at(share)?;
        let place = remaining.list.iter().position(|candidate| candidate.id == drawn.id)?;
        self.drawn = Some((drawn.id, self.before[place]));
        Some(drawn.id)
    }
}
