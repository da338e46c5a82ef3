//! Senders that start anew.
