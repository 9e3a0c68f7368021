//! Calls in pieces. A piece should say by its index which call it belongs to; but servers leave the index out, give every
//! call the index 0, repeat id and name with each piece, send a name in pieces, mix the pieces of several calls, or send
//! arguments twice. Each piece goes to the call that it fits.

use playhouse_protocol::ErrorInfo;
use serde_json::Value;

use crate::decode::{Batch, Parts, bad, check_count};
use crate::extent::Extent;
use crate::members::merge;
use crate::repair::Repair;

/// The calls of an answer, in the order in which they began.
#[derive(Default)]
pub(super) struct Calls(Vec<Call>);

struct Call {
    /// The index that its pieces have.
    index: u64,
    id: String,
    name: String,
    arguments: String,
    /// How far the arguments have come.
    extent: Extent,
    /// What goes back with it.
    members: Option<Value>,
    /// Its number, once it is told. It is told with its first arguments, since its name may come in pieces.
    number: Option<usize>,
}

/// A piece of a call. What is absent is empty.
pub(super) struct Piece<'a> {
    pub(super) index: Option<u64>,
    pub(super) id: &'a str,
    pub(super) name: &'a str,
    pub(super) arguments: &'a str,
    pub(super) members: Option<Value>,
}

/// What some servers send before the arguments.
const PLACEHOLDER: &str = "{}";

impl Calls {
    /// Whether a piece begins a call.
    pub(super) fn is_another(&self, piece: &Piece<'_>) -> bool {
        self.place(piece).is_none()
    }

    /// The call that a piece belongs to; `None` for another one.
    fn place(&self, piece: &Piece<'_>) -> Option<usize> {
        let Piece { index, id, name, .. } = *piece;
        let place = match index {
            Some(index) => self.0.iter().rposition(|call| call.index == index)?,
            None => {
                let known = self.0.iter().rposition(|call| !id.is_empty() && call.id == id);
                known.or(self.0.len().checked_sub(1))?
            }
        };
        (name.is_empty() || self.0[place].takes(piece)).then_some(place)
    }

    /// Takes a piece. What comes of it goes to `parts`; the caller has ended the part before a call that begins.
    ///
    /// # Errors
    ///
    /// There are too many calls.
    pub(super) fn add(
        &mut self,
        piece: Piece<'_>,
        parts: &mut Parts,
        batch: &mut Batch<'_>,
    ) -> Result<(), ErrorInfo> {
        let place = self.place(&piece);
        let Piece { index, id, name, arguments, members } = piece;
        let place = place.unwrap_or_else(|| {
            let last = self.0.iter().map(|call| call.index).max();
            if index.is_none_or(|index| self.0.iter().any(|call| call.index == index)) {
                parts.note(Repair::CallIndex);
            }
            let index = index.unwrap_or_else(|| last.map_or(0, |last| last.saturating_add(1)));
            self.0.push(Call {
                index,
                id: String::new(),
                name: String::new(),
                arguments: String::new(),
                extent: Extent::default(),
                members: None,
                number: None,
            });
            self.0.len() - 1
        });
        check_count(self.0.len())?;
        let is_last = place + 1 == self.0.len();
        let call = &mut self.0[place];
        if members.is_some() {
            merge(&mut call.members, members);
            if let Some(number) = call.number {
                parts.call_opaque(number, call.members.clone(), batch);
            }
        }
        if call.number.is_none() {
            if call.id.is_empty() {
                id.clone_into(&mut call.id);
            }
            // Repeated, as far as it had come, or one more piece of it.
            match name.strip_prefix(call.name.as_str()) {
                Some(rest) => call.name.push_str(rest),
                None => call.name.push_str(name),
            }
        }
        if arguments.is_empty() {
            return Ok(());
        }
        if call.extent.is_closed() {
            if arguments.trim() == call.arguments.trim() {
                parts.note(Repair::OutOfOrder);
                return Ok(());
            }
            if call.is_placeholder() {
                call.arguments.clear();
            }
        }
        if !is_last {
            parts.note(Repair::OutOfOrder);
        }
        call.arguments.push_str(arguments);
        call.extent.push(arguments);
        match call.number {
            Some(number) => parts.arguments(number, arguments, batch),
            None if call.name.is_empty() || call.is_placeholder() => {}
            None => call.tell(parts, batch),
        }
        Ok(())
    }

    /// Tells the calls that are not told yet, as far as they have a name.
    pub(super) fn tell(&mut self, parts: &mut Parts, batch: &mut Batch<'_>) {
        for call in self.0.iter_mut().filter(|call| call.number.is_none() && !call.name.is_empty()) {
            call.tell(parts, batch);
        }
    }

    /// Checks that every call has a name, once no more can come.
    pub(super) fn check(&self) -> Result<(), ErrorInfo> {
        match self.0.iter().any(|call| call.name.is_empty() && call.extent.is_begun()) {
            true => Err(bad("a call began without a name")),
            false => Ok(()),
        }
    }
}

impl Call {
    /// Whether a piece with a name and this call's index belongs to this call.
    fn takes(&self, piece: &Piece<'_>) -> bool {
        let Piece { index, id, name, arguments, .. } = *piece;
        let same_id = id.is_empty() || self.id.is_empty() || id == self.id;
        let has_id = !id.is_empty() && id == self.id;
        let is_numbered = index.is_some() || !id.is_empty();
        if !self.extent.is_begun() {
            return same_id && (is_numbered || self.name.is_empty());
        }
        if !self.extent.is_closed() {
            return has_id || name == self.name;
        }
        if arguments.trim_start().is_empty() {
            return same_id && is_numbered && name == self.name;
        }
        // Another call under the same index, unless it is the same one again.
        has_id && name == self.name && (self.is_placeholder() || arguments == self.arguments)
    }

    /// Whether nothing came but what some servers send before the arguments.
    fn is_placeholder(&self) -> bool {
        self.number.is_none() && self.arguments.trim() == PLACEHOLDER
    }

    fn tell(&mut self, parts: &mut Parts, batch: &mut Batch<'_>) {
        // One that was told late begins behind whatever part is under way.
        parts.end(batch);
        let number = parts.call(&self.id, &self.name, batch);
        parts.call_opaque(number, self.members.clone(), batch);
        parts.arguments(number, &self.arguments, batch);
        self.number = Some(number);
    }
}
