//! model text -> message.
