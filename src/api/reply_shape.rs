//! The shape of a chat's replies.

/// The shape of a chat's replies. It also decides which invalid values of a request are corrected
/// instead of refused.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ReplyShape {
    /// That of chats of `llb_chat_create`. Programs that call it may refuse unknown members of
    /// `usage` and `error`, so these have only their original members, and the details are in
    /// separate members.
    Classic,
    /// That of chats of `llb_chat_create_with`.
    #[default]
    Current,
}

impl ReplyShape {
    /// The maximum number of tokens of a reply if nothing sets one; None is what fits the context.
    pub(super) fn max_tokens(self) -> Option<usize> {
        match self {
            ReplyShape::Classic => Some(256),
            ReplyShape::Current => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ChatRequest;
    use crate::error::Result;

    fn parse(reply_shape: ReplyShape, members: &str) -> Result<ChatRequest> {
        let text = format!(r#"{{"messages":[{{"role":"user","content":"hi"}}],{members}}}"#);
        ChatRequest::parse(&text, reply_shape, &Default::default())
    }

    #[test]
    fn the_classic_door_corrects_max_tokens_and_temperature() {
        for (members, max_tokens) in [
            (r#""max_tokens":null"#, 256),
            (r#""max_tokens":0"#, 256),
            (r#""max_tokens":-1"#, 256),
            (r#""max_tokens":-2147483648"#, 256),
            (r#""max_tokens":3"#, 3),
            (r#""max_completion_tokens":0"#, 256),
            (r#""max_completion_tokens":-5,"max_tokens":4"#, 4),
        ] {
            let request = parse(ReplyShape::Classic, members).expect(members);
            assert_eq!(request.output.max_tokens, Some(max_tokens), "{members}");
        }
        for (members, temperature) in [
            (r#""temperature":-0.5"#, 0.0),
            (r#""temperature":-1e300"#, 0.0),
            (r#""temperature":0.3"#, 0.3),
        ] {
            let request = parse(ReplyShape::Classic, members).expect(members);
            assert_eq!(request.sampling.temperature, temperature, "{members}");
        }
        for (members, message) in [
            (
                r#""max_completion_tokens":0"#,
                "max_completion_tokens: must be from 1 to 2147483647, got 0",
            ),
            (r#""temperature":-0.5"#, "temperature: must be from 0 to 100, got -0.5"),
        ] {
            let error = parse(ReplyShape::Current, members).expect_err(members);
            assert_eq!(error.message(), message);
        }
    }
}
