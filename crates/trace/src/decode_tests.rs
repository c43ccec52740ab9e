use proptest::prelude::*;

use super::*;

/// A description of these fields: declaration, offset, size.
fn format(name: &str, fields: &[(&str, usize, usize)]) -> Format {
    let line = |(what, offset, size): &(&str, usize, usize)| {
        format!("\tfield:{what};\toffset:{offset};\tsize:{size};\tsigned:1;\n")
    };
    let lines: String = fields.iter().map(line).collect();
    let print = "print fmt: \"\", REC->prev_state & 256 ? \"+\" : \"\"";
    Format::parse(&format!("name: {name}\nID: 7\nformat:\n{lines}\n{print}\n")).expect("a format")
}

fn read(format: &Format, endian: Endian, payload: &[u8]) -> Option<KernelEvent> {
    let decoder = Decoder::new(std::slice::from_ref(format), endian, &mut Names::default(), &mut Damages::default());
    let mut event = KernelEvent::NONE;
    decoder.decode(payload, decoder.endian == Endian::Big, &mut event).then_some(event)
}

fn id(endian: Endian) -> [u8; 2] {
    if endian == Endian::Little { 7_u16.to_le_bytes() } else { 7_u16.to_be_bytes() }
}

proptest! {
    /// Numbers of any size and place, in either order of bytes, against the reader that looks at
    /// one field at a time.
    #[test]
    fn numbers_are_those_that_stand_there(
        mut payload in prop::collection::vec(any::<u8>(), 2..48),
        places in prop::array::uniform4((2_usize..44, 0_u32..4)),
        big: bool,
    ) {
        let endian = if big { Endian::Big } else { Endian::Little };
        payload[..2].copy_from_slice(&id(endian));
        let [pid, from, to, who] = places.map(|(offset, power)| (offset, 1_usize << power));
        let fields = [("int common_pid", pid), ("int orig_cpu", from), ("int dest_cpu", to), ("pid_t pid", who)];
        let format = format("sched_migrate_task", &fields.map(|(what, (offset, size))| (what, offset, size)));
        let slow = |(offset, size)| endian.unsigned(&payload, offset, size).map(|value| value as u32);
        let migration = || Some(EventKind::Migrate { pid: slow(who)?, from: slow(from)?, to: slow(to)? });
        let expected = slow(pid).zip(migration());
        let found = read(&format, endian, &payload).map(|event| (event.pid, event.what));
        prop_assert_eq!(found, expected);
    }

    /// Numbers with signs.
    #[test]
    fn results_have_their_signs(result: i32, wide: i64, big: bool) {
        let endian = if big { Endian::Big } else { Endian::Little };
        let format = format("sys_exit", &[("int common_pid", 2, 2), ("long id", 4, 8), ("long ret", 12, 4)]);
        let mut payload = id(endian).to_vec();
        payload.extend([0; 2]);
        payload.extend(if big { wide.to_be_bytes() } else { wide.to_le_bytes() });
        payload.extend(if big { result.to_be_bytes() } else { result.to_le_bytes() });
        let what = EventKind::SyscallExit { number: wide, result: i64::from(result) };
        prop_assert_eq!(read(&format, endian, &payload).map(|event| event.what), Some(what));
    }

    /// The shorter way reads what the general one does, wherever the fields begin and however short
    /// the event is.
    #[test]
    fn the_usual_layout_is_read_as_any_other(
        mut payload in prop::collection::vec(any::<u8>(), 8..80),
        start in 8_usize..20,
        wake: bool,
    ) {
        payload[..2].copy_from_slice(&id(Endian::Little));
        let at = |behind: usize| start + behind;
        let flags = ("unsigned char common_flags", 2, 1);
        let format = if wake {
            format("sched_waking", &[flags, ("int common_pid", 4, 4), ("char comm[16]", at(0), 16),
                ("pid_t pid", at(16), 4), ("int prio", at(20), 4), ("int target_cpu", at(24), 4)])
        } else {
            format("sched_switch", &[flags, ("int common_pid", 4, 4), ("char prev_comm[16]", at(0), 16),
                ("pid_t prev_pid", at(16), 4), ("int prev_prio", at(20), 4), ("long prev_state", at(24), 8),
                ("char next_comm[16]", at(32), 16), ("pid_t next_pid", at(48), 4), ("int next_prio", at(52), 4)])
        };
        let (mut names, mut damages) = (Names::default(), Damages::default());
        let mut decoder = Decoder::new(std::slice::from_ref(&format), Endian::Little, &mut names, &mut damages);
        let mut short = KernelEvent::NONE;
        let short = decoder.decode(&payload, decoder.endian == Endian::Big, &mut short).then_some(short);
        prop_assert!(!matches!(decoder.fast[7].kind, FastKind::General));
        decoder.fast.clear();
        let mut general = KernelEvent::NONE;
        let general = decoder.decode(&payload, decoder.endian == Endian::Big, &mut general).then_some(general);
        prop_assert_eq!(short, general);
        prop_assert_eq!(short.is_some(), payload.len() >= start + if wake { 28 } else { 56 });
    }
}

#[test]
fn a_name_elsewhere_in_the_event_is_found_there_or_not_at_all() {
    let format = format("sched_process_exit", &[("int common_pid", 4, 4), ("pid_t pid", 8, 4)]);
    assert!(read(&format, Endian::Little, &[7, 0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0]).is_some());
    let format = self::format(
        "sched_process_fork",
        &[
            ("int common_pid", 4, 4),
            ("pid_t parent_pid", 8, 4),
            ("__data_loc char[] child_comm", 12, 4),
            ("pid_t child_pid", 16, 4),
        ],
    );
    let mut payload = vec![7, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 20, 0, 3, 0, 2, 0, 0, 0, b'a', b'b', 0];
    let event = read(&format, Endian::Little, &payload).expect("it is whole");
    assert_eq!(event.what, EventKind::Fork { parent: 1, child: 2, comm: Comm::new(b"ab") });
    payload.pop();
    assert_eq!(read(&format, Endian::Little, &payload), None, "the name reaches past the end");
}

#[test]
fn the_bit_of_preemption_is_read_from_what_the_kernel_prints() {
    let of_3_10 = concat!(
        r#"REC->prev_state & (1024-1) ? __print_flags(REC->prev_state & (1024-1), "|", { 1, "S"} , { 512, "P" })"#,
        r#" : "R", REC->prev_state & 1024 ? "+" : """#
    );
    let of_4_4 =
        r#"REC->prev_state & (4096-1) ? f({ 1, "S"} , { 1024, "N" }) : "R", REC->prev_state & 4096 ? "+" : """#;
    let of_6_18 = concat!(
        r#"(REC->prev_state & (((0x1 | 0x40) + 1) << 1)) ? f({ 0x00000001, "S" }, { 0x00000080, "I" }) : "R","#,
        r#" REC->prev_state & (((0x00000000 | 0x00000040) + 1) << 1) ? "+" : """#
    );
    for (print, bit) in [(of_3_10, 1024), (of_4_4, 4096), (of_6_18, 256), ("", 0)] {
        assert_eq!(StateBits::of(print).preempted, bit, "{print}");
    }
}

#[test]
fn states_mean_what_kernels_mean_by_them() {
    let new = StateBits { preempted: 256 };
    let old = StateBits { preempted: 4096 };
    for (states, number, left) in [
        (new, 0, SwitchOutState::Ready),
        (new, 256, SwitchOutState::Preempted),
        (new, 1, SwitchOutState::Blocked),
        (new, 2, SwitchOutState::Held),
        (new, 4, SwitchOutState::Held),
        (new, 0x80, SwitchOutState::Blocked),
        (new, 0x10, SwitchOutState::Ended),
        (new, 0x20, SwitchOutState::Ended),
        (old, 4096, SwitchOutState::Preempted),
        (old, 1025, SwitchOutState::Blocked),
        // It was being woken when it left.
        (old, 256, SwitchOutState::Blocked),
        (StateBits::UNKNOWN, 1024, SwitchOutState::Preempted),
        (StateBits::UNKNOWN, 256, SwitchOutState::Preempted),
        (StateBits::UNKNOWN, 258, SwitchOutState::Held),
    ] {
        assert_eq!(states.left(number), left, "{states:?} {number}");
    }
}
