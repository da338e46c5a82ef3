//! Senders that change.
