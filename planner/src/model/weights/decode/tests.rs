use super::*;

fn power_of(exponent: i32) -> f64 {
    libm::pow(2.0, exponent.into())
}

/// A float of `exponent` and `fraction` bits by its definition, in 64 bits; finite numbers alone.
fn defined(bits: u32, exponent: u32, fraction: u32) -> f64 {
    let bias = (1 << (exponent - 1)) - 1;
    let (mantissa, power) = (bits & ((1 << fraction) - 1), (bits >> fraction) & ((1 << exponent) - 1));
    let part = f64::from(mantissa) / f64::from(1 << fraction);
    let sign = if bits >> (exponent + fraction) & 1 == 1 { -1.0 } else { 1.0 };
    match power {
        0 => sign * part * power_of(1 - bias),
        _ => sign * (1.0 + part) * power_of(power as i32 - bias),
    }
}

fn same(found: f32, defined: f64) -> bool {
    f64::from(found) == defined && found.is_sign_negative() == defined.is_sign_negative()
}

#[test]
fn every_pattern_is_the_number_of_its_definition() {
    for bits in 0..=u16::MAX {
        let wide = u32::from(bits);
        match (bits >> 10) & 31 {
            31 if bits & 0x3ff > 0 => assert!(f16_to_f32(bits).is_nan()),
            31 => {
                assert_eq!(f16_to_f32(bits), if bits >> 15 == 1 { f32::NEG_INFINITY } else { f32::INFINITY })
            }
            _ => assert!(same(f16_to_f32(bits), defined(wide, 5, 10)), "{bits:x}"),
        }
        match (bits >> 7) & 255 {
            255 if bits & 0x7f > 0 => assert!(bf16_to_f32(bits).is_nan()),
            255 => assert!(bf16_to_f32(bits).is_infinite()),
            _ => assert!(same(bf16_to_f32(bits), defined(wide, 8, 7)), "{bits:x}"),
        }
    }
    for bits in 0..=u8::MAX {
        match bits & 0x7f {
            0x7f => assert!(e4m3_to_f32(bits).is_nan()),
            _ => assert!(same(e4m3_to_f32(bits), defined(bits.into(), 4, 3)), "{bits:x}"),
        }
        let power = if bits == 255 { f32::NAN } else { power_of(i32::from(bits) - 127) as f32 };
        assert_eq!(power_of_two(bits).to_bits(), power.to_bits(), "{bits}");
        if bits < 16 {
            assert!(same(E2M1[usize::from(bits)], defined(bits.into(), 2, 1)), "{bits}");
        }
    }
}

/// Every finite number comes back, and what lies at, before and behind the middle of two goes where it must.
fn rounds(largest: u16, decode: fn(u16) -> f32, encode: fn(f32) -> u16) {
    for sign in [0, 0x8000] {
        for bits in 0..largest {
            let (low, high) = (decode(sign | bits), decode(sign | (bits + 1)));
            assert_eq!(encode(low), sign | bits);
            if high.is_infinite() {
                continue;
            }
            let middle = ((f64::from(low) + f64::from(high)) / 2.0) as f32;
            let even = sign | (bits + (bits & 1));
            assert_eq!(encode(middle), even, "{bits:x}");
            let away = f32::from_bits(middle.to_bits() + 1);
            let near = f32::from_bits(middle.to_bits() - 1);
            assert_eq!(encode(away), sign | (bits + 1), "{bits:x}");
            assert_eq!(encode(near), sign | bits, "{bits:x}");
        }
    }
    assert!(decode(encode(f32::NAN)).is_nan());
    assert!(decode(encode(f32::from_bits(0x7f80_0001))).is_nan());
    assert_eq!(decode(encode(f32::INFINITY)), f32::INFINITY);
    assert_eq!(decode(encode(f32::NEG_INFINITY)), f32::NEG_INFINITY);
    assert_eq!(decode(encode(f32::MAX)), f32::INFINITY);
}

#[test]
fn encoding_rounds_to_the_nearest_and_then_to_even() {
    rounds(0x7c00, f16_to_f32, f32_to_f16);
    rounds(0x7f80, bf16_to_f32, f32_to_bf16);
    // The largest half, and what rounds past it.
    assert_eq!((f32_to_f16(65519.996), f32_to_f16(65520.0)), (0x7bff, 0x7c00));
}

#[test]
fn runs_are_elements_at_their_distance() {
    let values: Vec<f32> = (0..40_u8).map(f32::from).collect();
    for format in [Format::F64, Format::F32, Format::F16, Format::Bf16] {
        let mut bytes = vec![0; 40 * format.bytes() as usize];
        encode(format, &values, 0, 1, &mut bytes).unwrap();
        let mut out = [0.0; 5];
        decode(format, &bytes, 3, 7, &mut out).unwrap();
        assert_eq!(out, [3.0, 10.0, 17.0, 24.0, 31.0]);
        decode(format, &bytes, 35, 1, &mut out).unwrap();
        assert_eq!(out, [35.0, 36.0, 37.0, 38.0, 39.0]);
        assert_eq!(decode(format, &bytes, 36, 1, &mut out), None);
        assert_eq!(decode(format, &bytes, 20, 7, &mut out), None);
        assert_eq!(decode(format, &bytes, u64::MAX, 2, &mut out), None);
        encode(format, &[1.0, 2.0], 0, 39, &mut bytes).unwrap();
        decode(format, &bytes, 0, 39, &mut out[..2]).unwrap();
        assert_eq!(out[..2], [1.0, 2.0]);
        assert_eq!(encode(format, &[1.0, 2.0], 1, 39, &mut bytes), None);
    }
}

#[test]
fn factors_are_those_of_blocks() {
    // 5 rows of 7 columns, in blocks of 2 by 3.
    let (columns, block) = (7, [2, 3]);
    let bytes: Vec<u8> = (0..35).map(|at| (at * 37 % 127) as u8).collect();
    let factors: Vec<f32> = (1..=9_u8).map(|at| 0.25 * f32::from(at)).collect();
    let mut scales = vec![0; 36];
    encode(Format::F32, &factors, 0, 1, &mut scales).unwrap();
    for (first, stride, count) in [(0, 1, 35), (3, 7, 4), (1, 2, 17), (34, 1, 1)] {
        let mut out = vec![0.0; count];
        decode_fp8_blocks(&bytes, &scales, columns, block, first, stride, &mut out).unwrap();
        for (at, out) in out.iter().enumerate() {
            let element = first as usize + at * stride as usize;
            let factor = factors[element / 7 / 2 * 3 + element % 7 / 3];
            assert_eq!(*out, e4m3_to_f32(bytes[element]) * factor, "{element}");
        }
    }
    let mut out = [0.0; 2];
    assert_eq!(decode_fp8_blocks(&bytes, &scales[..32], columns, block, 33, 1, &mut out), None);
    assert_eq!(decode_fp8_blocks(&bytes, &scales, 0, block, 0, 1, &mut out), None);
    assert_eq!(decode_fp8_blocks(&bytes, &scales, 7, [0, 0], 0, 1, &mut out), None);
}

#[test]
fn four_bits_have_the_exponent_of_their_32() {
    let blocks: Vec<u8> = (0..32).map(|at| (at * 73 % 256) as u8).collect();
    let scales = [127, 120];
    for (first, stride, count) in [(0, 1, 64), (5, 9, 7), (63, 1, 1)] {
        let mut out = vec![0.0; count];
        decode_mxfp4(&blocks, &scales, first, stride, &mut out).unwrap();
        for (at, out) in out.iter().enumerate() {
            let element = first as usize + at * stride as usize;
            let bits = (blocks[element / 2] >> (4 * (element % 2))) & 15;
            let power = [1.0, 1.0 / 128.0][element / 32];
            assert_eq!(f64::from(*out), defined(bits.into(), 2, 1) * power, "{element}");
        }
    }
    assert_eq!(decode_mxfp4(&blocks, &scales, 64, 1, &mut [0.0]), None);
}
