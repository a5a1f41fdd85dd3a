//! What the server in front of an engine does to a request before the scheduler sees it.

use crate::base::record::Rejection;
use crate::workload::request::RequestSpec;

/// The server of an engine, as far as it decides who enters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrontEnd {
    /// vLLM's: it refuses prompts that leave no room for an output token, and limits outputs to what fits (R90, R91
    /// of release 0.33.0).
    Vllm {
        /// Longest sequence of the engine, in tokens.
        model_len_max: u32,
    },
    /// SGLang's: it refuses prompts as long as the context. Limiting outputs, and ending what is too long for the
    /// pool, is the scheduler's business (A2, A3 of release 0.5.23).
    Sglang {
        /// The model's context, in tokens, but for what drafts need of it (V3).
        context_tokens: u32,
    },
    /// TensorRT-LLM's: as vLLM's, and it refuses prompts that no pass has room for, if they are not divided (F1, F2).
    Trtllm {
        /// Longest sequence of the engine, in tokens.
        sequence_tokens: u32,
        /// Longest prompt, in tokens, if it is shorter than the sequence lets it be.
        prompt_tokens_max: u32,
    },
    /// None: everything enters as it is.
    Bypassed,
}

impl FrontEnd {
    /// The output limit under which `request` enters the engine, or why it does not enter. A server refuses an
    /// empty prompt and a request for no output, too.
    pub(crate) fn admit(self, request: &RequestSpec) -> Result<u32, Rejection> {
        let prompt_tokens_max = match self {
            Self::Bypassed => return Ok(request.max_tokens),
            Self::Vllm { model_len_max: tokens } | Self::Sglang { context_tokens: tokens } => {
                tokens
            }
            Self::Trtllm { sequence_tokens, prompt_tokens_max } => {
                sequence_tokens.min(prompt_tokens_max.saturating_add(1))
            }
        };
        if request.prompt_tokens == 0 {
            return Err(Rejection::EmptyPrompt);
        }
        if request.output_tokens == 0 || request.max_tokens == 0 {
            return Err(Rejection::ZeroOutput);
        }
        if request.prompt_tokens >= prompt_tokens_max {
            return Err(Rejection::PromptTooLong);
        }
        Ok(match self {
            Self::Vllm { model_len_max: tokens } | Self::Trtllm { sequence_tokens: tokens, .. } => {
                request.max_tokens.min(tokens - request.prompt_tokens)
            }
            _ => request.max_tokens,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::RequestId;
    use crate::base::time::SimTime;
    use crate::workload::request::{Content, Segment};

    fn request(prompt_tokens: u32, output_tokens: u32) -> RequestSpec {
        RequestSpec {
            id: RequestId(0),
            arrival: SimTime::ZERO,
            prompt_tokens,
            output_tokens,
            max_tokens: output_tokens,
            priority: 0,
            class: 0,
            content: Content::Private,
            output: Segment::Output(RequestId(0)),
            line: 0,
            turn: None,
            drafts: None,
        }
    }

    const VLLM: FrontEnd = FrontEnd::Vllm { model_len_max: 100 };
    const SGLANG: FrontEnd = FrontEnd::Sglang { context_tokens: 100 };

    #[test]
    fn the_longest_sequence_is_a_tight_gate() {
        assert_eq!(VLLM.admit(&request(99, 50)), Ok(1));
        assert_eq!(VLLM.admit(&request(50, 50)), Ok(50));
        assert_eq!(VLLM.admit(&request(50, 51)), Ok(50));
        // What is too much output for the context is cut by the scheduler.
        assert_eq!(SGLANG.admit(&request(99, 50)), Ok(50));
        for front_end in [VLLM, SGLANG] {
            let refused = front_end.admit(&request(100, 50));
            assert_eq!(refused, Err(Rejection::PromptTooLong), "{front_end:?}");
        }
    }

    #[test]
    fn a_prompt_that_is_not_divided_fits_into_a_pass() {
        let front_end =
            |prompt_tokens_max| FrontEnd::Trtllm { sequence_tokens: 100, prompt_tokens_max };
        assert_eq!(front_end(60).admit(&request(60, 50)), Ok(40));
        assert_eq!(front_end(60).admit(&request(61, 50)), Err(Rejection::PromptTooLong));
        assert_eq!(front_end(u32::MAX).admit(&request(99, 50)), Ok(1));
        assert_eq!(front_end(u32::MAX).admit(&request(100, 50)), Err(Rejection::PromptTooLong));
    }

    #[test]
    fn empty_requests_are_refused() {
        for front_end in [VLLM, SGLANG] {
            assert_eq!(front_end.admit(&request(0, 5)), Err(Rejection::EmptyPrompt));
            assert_eq!(front_end.admit(&request(5, 0)), Err(Rejection::ZeroOutput));
        }
        assert_eq!(FrontEnd::Bypassed.admit(&request(0, 5)), Ok(5));
    }
}
