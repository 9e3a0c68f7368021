//! Values in few bytes, one behind the other: what stands where is told by the version of the whole.
//!
//! Whole numbers have seven bits a byte, the low ones first, and 128 in all bytes but the last. Texts begin with their length,
//! and values that may be missing have a bit in a byte of flags. What is read may be anything: whatever is not of this form is
//! `None`.

use playhouse_protocol::id::{ID_LENGTH, Id};
use rust_decimal::Decimal;
use serde_json::{Map, Number, Value};

/// How deep JSON may be nested: as deep as in the records that it is from.
const DEPTH: usize = 256;

/// What ids have in front of what tells them apart: three letters and `_`.
const PREFIX: usize = 4;

/// The most that a decimal is divided by: 10 to this power.
const MOST_SCALE: u8 = 28;
const NEGATIVE: u8 = 128;

const NULL: u8 = 0;
const FALSE: u8 = 1;
const TRUE: u8 = 2;
const WHOLE: u8 = 3;
const BELOW_ZERO: u8 = 4;
const FRACTION: u8 = 5;
const TEXT: u8 = 6;
const LIST: u8 = 7;
const OBJECT: u8 = 8;

/// A checksum over all of these.
pub(super) fn checksum(parts: &[&[u8]]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    parts.iter().for_each(|part| hasher.update(part));
    hasher.finalize()
}

/// Writes values.
pub(super) struct Packer<'a> {
    bytes: &'a mut Vec<u8>,
}

impl<'a> Packer<'a> {
    /// Behind what is in `bytes`.
    pub(super) fn new(bytes: &'a mut Vec<u8>) -> Self {
        Self { bytes }
    }

    pub(super) fn byte(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    pub(super) fn number(&mut self, number: u64) {
        let mut rest = number;
        while rest >= 128 {
            self.byte(rest as u8 | 128);
            rest >>= 7;
        }
        self.byte(rest as u8);
    }

    /// How much `number` is above `base`, or below it: it is told small where the two are near each other.
    pub(super) fn near(&mut self, number: u64, base: u64) {
        let difference = number.wrapping_sub(base) as i64;
        self.number(((difference << 1) ^ (difference >> 63)) as u64);
    }

    pub(super) fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.bytes.extend_from_slice(text.as_bytes());
    }

    /// An id, whose kind the reader knows.
    pub(super) fn id(&mut self, id: &str) {
        self.bytes.extend_from_slice(id.as_bytes().get(PREFIX..).unwrap_or_default());
    }

    pub(super) fn decimal(&mut self, decimal: Decimal) {
        let sign = if decimal.is_sign_negative() { NEGATIVE } else { 0 };
        self.byte(decimal.scale() as u8 | sign);
        let mut rest = decimal.mantissa().unsigned_abs();
        while rest > u128::from(u64::MAX) {
            self.byte(rest as u8 | 128);
            rest >>= 7;
        }
        self.number(rest as u64);
    }

    /// Those of these decimals that are there.
    pub(super) fn decimals<const COUNT: usize>(&mut self, decimals: [Option<Decimal>; COUNT]) {
        let known = decimals.iter().rev().fold(0, |known, one| known << 1 | u8::from(one.is_some()));
        self.byte(known);
        decimals.into_iter().flatten().for_each(|decimal| self.decimal(decimal));
    }

    /// Whether it is nested no deeper than can be read.
    pub(super) fn json(&mut self, value: &Value) -> bool {
        self.nested(value, DEPTH)
    }

    fn nested(&mut self, value: &Value, depth: usize) -> bool {
        match value {
            Value::Null => self.byte(NULL),
            Value::Bool(false) => self.byte(FALSE),
            Value::Bool(true) => self.byte(TRUE),
            Value::Number(number) => match (number.as_u64(), number.as_i64()) {
                (Some(number), _) => {
                    self.byte(WHOLE);
                    self.number(number);
                }
                (None, Some(number)) => {
                    self.byte(BELOW_ZERO);
                    self.number(number.unsigned_abs());
                }
                (None, None) => {
                    self.byte(FRACTION);
                    self.bytes
                        .extend_from_slice(&number.as_f64().unwrap_or_default().to_bits().to_be_bytes());
                }
            },
            Value::String(text) => {
                self.byte(TEXT);
                self.text(text);
            }
            Value::Array(_) | Value::Object(_) if depth == 0 => return false,
            Value::Array(values) => {
                self.byte(LIST);
                self.number(values.len() as u64);
                return values.iter().all(|value| self.nested(value, depth - 1));
            }
            Value::Object(fields) => {
                self.byte(OBJECT);
                self.number(fields.len() as u64);
                return fields.iter().all(|(name, value)| {
                    self.text(name);
                    self.nested(value, depth - 1)
                });
            }
        }
        true
    }
}

/// Reads values, in the order in which they were written.
pub(super) struct Unpacker<'a> {
    rest: &'a [u8],
}

impl<'a> Unpacker<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Whether all was read.
    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(bytes)
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*byte)
    }

    fn large(&mut self) -> Option<u128> {
        let mut number = 0;
        for shift in (0..u128::BITS).step_by(7) {
            let byte = self.byte()?;
            let part = u128::from(byte & 127);
            number |= part.checked_shl(shift).filter(|shifted| shifted >> shift == part)?;
            if byte < 128 {
                return Some(number);
            }
        }
        None
    }

    pub(super) fn number(&mut self) -> Option<u64> {
        self.large()?.try_into().ok()
    }

    pub(super) fn small(&mut self) -> Option<u32> {
        self.number()?.try_into().ok()
    }

    pub(super) fn near(&mut self, base: u64) -> Option<u64> {
        let told = self.number()?;
        let difference = (told >> 1) as i64 ^ -((told & 1) as i64);
        Some(base.wrapping_add(difference as u64))
    }

    pub(super) fn text(&mut self) -> Option<&'a str> {
        let length = self.number()?.try_into().ok()?;
        std::str::from_utf8(self.bytes(length)?).ok()
    }

    /// What an id has behind its prefix.
    pub(super) fn id_text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes(ID_LENGTH - PREFIX)?).ok()
    }

    pub(super) fn id<I: Id + std::str::FromStr>(&mut self) -> Option<I> {
        let mut text = String::with_capacity(ID_LENGTH);
        text.push_str(I::PREFIX);
        text.push('_');
        text.push_str(self.id_text()?);
        text.parse().ok()
    }

    pub(super) fn decimal(&mut self) -> Option<Decimal> {
        let head = self.byte()?;
        let (scale, is_negative) = (head & !NEGATIVE, head & NEGATIVE != 0);
        let mantissa = self.large()?;
        if scale > MOST_SCALE || mantissa >> 96 != 0 {
            return None;
        }
        let part = |shift: u32| (mantissa >> shift) as u32;
        Some(Decimal::from_parts(part(0), part(32), part(64), is_negative, scale.into()))
    }

    pub(super) fn decimals<const COUNT: usize>(&mut self) -> Option<[Option<Decimal>; COUNT]> {
        let known = self.byte()?;
        if known.checked_shr(COUNT as u32).is_some_and(|more| more != 0) {
            return None;
        }
        let mut decimals = [None; COUNT];
        for (place, decimal) in decimals.iter_mut().enumerate() {
            if known >> place & 1 == 1 {
                *decimal = Some(self.decimal()?);
            }
        }
        Some(decimals)
    }

    pub(super) fn json(&mut self) -> Option<Value> {
        self.nested(DEPTH)
    }

    fn nested(&mut self, depth: usize) -> Option<Value> {
        Some(match self.byte()? {
            NULL => Value::Null,
            FALSE => Value::Bool(false),
            TRUE => Value::Bool(true),
            WHOLE => self.number()?.into(),
            BELOW_ZERO => 0_i64.checked_sub_unsigned(self.number()?)?.into(),
            FRACTION => {
                let bits = u64::from_be_bytes(*self.bytes(size_of::<u64>())?.first_chunk()?);
                Value::Number(Number::from_f64(f64::from_bits(bits))?)
            }
            TEXT => Value::String(self.text()?.to_owned()),
            LIST => {
                let depth = depth.checked_sub(1)?;
                let count = self.number()?;
                (0..count).map(|_| self.nested(depth)).collect::<Option<_>>().map(Value::Array)?
            }
            OBJECT => {
                let depth = depth.checked_sub(1)?;
                let count = self.number()?;
                let field = |_| Some((self.text()?.to_owned(), self.nested(depth)?));
                (0..count).map(field).collect::<Option<Map<_, _>>>().map(Value::Object)?
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use playhouse_protocol::SessionId;
    use proptest::prelude::*;

    use super::*;

    fn packed(write: impl FnOnce(&mut Packer<'_>)) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(&mut Packer::new(&mut bytes));
        bytes
    }

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::Bool),
            any::<u64>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_filter("JSON has no others", |number| number.is_finite()).prop_map(Value::from),
            ".{0,9}".prop_map(Value::String),
        ];
        leaf.prop_recursive(4, 40, 6, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::Array),
                proptest::collection::vec((".{0,5}", inner), 0..6)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            (number, base, low, high) in any::<(u64, u64, u64, u32)>(),
            (scale, is_negative) in (0..=28_u32, any::<bool>()),
            text in ".{0,200}",
            value in json(),
        ) {
            let decimal = Decimal::from_parts(low as u32, (low >> 32) as u32, high, is_negative, scale);
            let decimals = [None, Some(decimal), None, Some(Decimal::ONE)];
            let id: SessionId = "ses_0123456789abABCDEFGHIJKLMN".parse().unwrap();
            let bytes = packed(|packer| {
                packer.number(number);
                packer.near(number, base);
                packer.text(&text);
                packer.id(id.as_str());
                packer.decimals(decimals);
                assert!(packer.json(&value));
            });
            let mut unpacker = Unpacker::new(&bytes);
            prop_assert_eq!(unpacker.number(), Some(number));
            prop_assert_eq!(unpacker.near(base), Some(number));
            prop_assert_eq!(unpacker.text(), Some(&text[..]));
            prop_assert_eq!(unpacker.id(), Some(id));
            let read = unpacker.decimals::<4>().unwrap();
            // Equal amounts may be written in two ways; which, is kept.
            prop_assert_eq!(read.map(|one| one.map(|one| one.to_string())), decimals.map(|one| one.map(|one| one.to_string())));
            // The order of fields is kept, which equality does not see.
            prop_assert_eq!(unpacker.json().unwrap().to_string(), value.to_string());
            prop_assert!(unpacker.is_empty());
        }

        #[test]
        fn whatever_is_read_does_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let mut unpacker = Unpacker::new(&bytes);
            let _ = (unpacker.decimals::<6>(), unpacker.text(), unpacker.id::<SessionId>(), unpacker.near(7));
            let _ = Unpacker::new(&bytes).json();
        }
    }

    #[test]
    fn what_is_too_long_or_too_deep_is_not_read() {
        let too_long = [&[255; 18][..], &[127]].concat();
        assert_eq!(Unpacker::new(&too_long).number(), None);
        assert_eq!(Unpacker::new(&too_long).decimal(), None);
        assert_eq!(Unpacker::new(&[MOST_SCALE + 1, 1]).decimal(), None);
        assert_eq!(Unpacker::new(&[64, 0, 1]).decimals::<6>(), None);
        // So many elements are said to follow.
        assert_eq!(Unpacker::new(&[LIST, 255, 255, 255, 255, 127]).json(), None);
        let deep = |depth: usize| (0..depth).fold(Value::Null, |value, _| Value::Array(vec![value]));
        let mut bytes = Vec::new();
        assert!(Packer::new(&mut bytes).json(&deep(DEPTH)));
        assert_eq!(Unpacker::new(&bytes).json(), Some(deep(DEPTH)));
        assert!(!Packer::new(&mut bytes).json(&deep(DEPTH + 1)));
        assert_eq!(Unpacker::new(&[&[LIST, 1].repeat(DEPTH + 1)[..], &[NULL]].concat()).json(), None);
    }
}
