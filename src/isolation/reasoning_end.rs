//! Ends the reasoning of a reply in a helper process. The caller may ask for that at any time.

use std::sync::{Mutex, PoisonError};

use super::message::ListenerMessage;

/// A request to end the reasoning of one call's reply. Any thread may make it, even before the call
/// is sent.
#[derive(Default)]
pub(super) struct ReasoningEnd(Mutex<State>);

#[derive(Default, Clone, Copy)]
enum State {
    #[default]
    NotSent,
    /// Requested before the call was sent. The request goes out with the call.
    Asked,
    /// The call was sent.
    Sent { connection: u64, call: u64 },
}

impl ReasoningEnd {
    /// Requests the end. Returns the message to send now, if the call was already sent.
    pub(super) fn ask(&self) -> Option<ListenerMessage> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let State::Sent { connection, call } = *state {
            return Some(ListenerMessage::EndReasoning { connection, call });
        }
        *state = State::Asked;
        None
    }

    /// Notes that the call was sent. If the end was already requested, returns the message to send
    /// after it.
    pub(super) fn note_sent(&self, connection: u64, call: u64) -> Option<ListenerMessage> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *state, State::Sent { connection, call });
        matches!(before, State::Asked).then_some(ListenerMessage::EndReasoning { connection, call })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_before_the_call_goes_with_it() {
        let sent = |message: Option<ListenerMessage>| message.map(|message| message.to_bytes());
        let expected = ListenerMessage::EndReasoning { connection: 3, call: 7 }.to_bytes();
        let early = ReasoningEnd::default();
        assert_eq!(sent(early.ask()), None);
        assert_eq!(sent(early.note_sent(3, 7)), Some(expected));
        let late = ReasoningEnd::default();
        assert_eq!(sent(late.note_sent(3, 7)), None);
        assert_eq!(sent(late.ask()), Some(expected));
    }
}
