//! Numbers of a length that fits them: seven bits to a byte, the lowest first; the highest bit says that more follow.

const MORE: u8 = 0x80;

/// Appends a number.
pub(super) fn push(into: &mut Vec<u8>, mut number: u64) {
    while number >= MORE.into() {
        into.push(number.to_le_bytes()[0] | MORE);
        number >>= 7;
    }
    into.push(number.to_le_bytes()[0]);
}

/// Appends a number that may be negative: its lowest bit says so.
pub(super) fn push_signed(into: &mut Vec<u8>, number: i64) {
    push(into, (number << 1 ^ number >> 63).cast_unsigned());
}

/// The number with which this begins, and what follows it. `None` where there is none.
pub(super) fn take(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut number = 0;
    for (place, byte) in bytes.iter().enumerate() {
        let bits = u64::from(byte & !MORE);
        let shift = u32::try_from(place).ok()?.checked_mul(7).filter(|shift| *shift < u64::BITS)?;
        if bits << shift >> shift != bits {
            return None;
        }
        number |= bits << shift;
        if byte & MORE == 0 {
            return Some((number, &bytes[place + 1..]));
        }
    }
    None
}

/// The same for one that may be negative.
pub(super) fn take_signed(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let (number, rest) = take(bytes)?;
    Some(((number >> 1).cast_signed() ^ -(number & 1).cast_signed(), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_read_back_and_nothing_else_is() {
        for number in [0, 1, 127, 128, 16_383, 16_384, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut bytes = Vec::new();
            push(&mut bytes, number);
            let length = bytes.len();
            assert!((0..length).all(|cut| take(&bytes[..cut]).is_none()), "{number}");
            bytes.push(7);
            assert_eq!(take(&bytes), Some((number, &[7][..])));
            let signed = number.cast_signed();
            let mut bytes = Vec::new();
            push_signed(&mut bytes, signed);
            assert_eq!(take_signed(&bytes), Some((signed, &[][..])));
        }
        let mut small = Vec::new();
        push_signed(&mut small, -3);
        assert_eq!(small.len(), 1);
        // More than 64 bits.
        assert_eq!(take(&[[0xff; 9].as_slice(), &[2]].concat()), None);
        assert_eq!(take(&[0x80; 11]), None);
    }
}
