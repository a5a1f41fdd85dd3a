//! What the server in front of an engine does to a request before the scheduler sees it.

use crate::base::record::Rejection;
use crate::workload::request::RequestSpec;

/// The output limit under which `request` enters an engine whose sequences hold at most
/// `model_len_max` tokens, or why it does not enter.
///
/// Follows vLLM 0.33.0, rules R90 and R91: an empty prompt, a request for no output and a prompt
/// that leaves no room for an output token are refused; `max_tokens` is lowered to what fits.
pub(crate) fn admit(request: &RequestSpec, model_len_max: u32) -> Result<u32, Rejection> {
    if request.prompt_tokens == 0 {
        return Err(Rejection::EmptyPrompt);
    }
    if request.output_tokens == 0 || request.max_tokens == 0 {
        return Err(Rejection::ZeroOutput);
    }
    if request.prompt_tokens >= model_len_max {
        return Err(Rejection::PromptTooLong);
    }
    Ok(request.max_tokens.min(model_len_max - request.prompt_tokens))
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
        }
    }

    #[test]
    fn the_model_length_is_a_tight_gate() {
        assert_eq!(admit(&request(99, 50), 100), Ok(1));
        assert_eq!(admit(&request(100, 50), 100), Err(Rejection::PromptTooLong));
        assert_eq!(admit(&request(50, 50), 100), Ok(50));
        assert_eq!(admit(&request(50, 51), 100), Ok(50));
    }

    #[test]
    fn empty_requests_are_refused() {
        assert_eq!(admit(&request(0, 5), 100), Err(Rejection::EmptyPrompt));
        assert_eq!(admit(&request(5, 0), 100), Err(Rejection::ZeroOutput));
    }
}
