//! One list of behaviours (`behaviour`), and every receiver put through it. A backend brings a [`Setup`] along: how to open
//! it, how to send to it, and what it cannot do and why. Then one line here gives it all the tests.

mod behaviour;
#[cfg(feature = "dpdk")]
mod dpdk;
#[cfg(feature = "verbs")]
#[path = "../verbs/library.rs"]
mod library;
mod memory;
#[path = "../netns/mod.rs"]
mod netns;
mod pair;
mod pcap;
#[cfg(feature = "rivermax-stand-in")]
mod rivermax;
mod setup;
mod socket;
#[path = "../support/mod.rs"]
mod support;
#[cfg(feature = "verbs")]
mod verbs;
mod xdp;

use setup::Setup;

/// A test for each behaviour of a backend whose setup is made by an expression; none where the machine lacks what it needs,
/// which the expression prints.
macro_rules! put_through {
    ($backend:ident, $setup:expr) => {
        put_through!($backend, $setup,
            datagrams_come_whole_in_order_and_counted,
            the_largest_datagram_is_not_cut,
            nothing_comes_when_nothing_is_sent,
            an_input_that_ends_says_so_again_and_again,
            leased_octets_stay_and_leases_go_back_in_order,
            only_sources_that_are_included_come,
            sources_that_are_excluded_stay_away,
            groups_are_joined_and_others_stay_away,
            two_legs_come_through_one_receiver,
            a_stream_becomes_the_frames_that_were_sent,
            what_was_lost_is_located,
            two_legs_make_up_for_each_other,
            one_of_two_legs_is_enough,
        );
    };
    ($backend:ident, $setup:expr, $($behaviour:ident),* $(,)?) => {
        mod $backend {
            $(
                #[test]
                fn $behaviour() {
                    let setup: Option<Box<dyn crate::Setup>> = $setup;
                    if let Some(setup) = setup {
                        crate::behaviour::$behaviour(setup.as_ref());
                    }
                }
            )*
        }
    };
}

put_through!(socket_on_loopback, Some(Box::new(crate::socket::Loopback::new())));
put_through!(socket_on_veth, crate::socket::Veth::new().map(|veth| Box::new(veth) as _));
put_through!(capture, Some(Box::new(crate::pcap::Recorded::new())));
put_through!(capture_with_tap, Some(Box::new(crate::pcap::Recorded::tapped())));
put_through!(ring_of_memory, Some(Box::new(crate::memory::Filled)));

#[cfg(feature = "rivermax-stand-in")]
mod by_rivermax {
    put_through!(whole, Some(Box::new(crate::rivermax::whole())));
    put_through!(split, Some(Box::new(crate::rivermax::split())));
    put_through!(in_sequence, Some(Box::new(crate::rivermax::in_sequence())));
    put_through!(long_strides, Some(Box::new(crate::rivermax::long_strides())));
    put_through!(idle_polls, Some(Box::new(crate::rivermax::idle_polls())));
    put_through!(no_split, Some(Box::new(crate::rivermax::no_split())));
}

#[cfg(feature = "verbs")]
mod by_verbs {
    put_through!(whole, Some(Box::new(crate::verbs::whole())));
    put_through!(cut_short, Some(Box::new(crate::verbs::cut_short())));
    put_through!(cut_long, Some(Box::new(crate::verbs::cut_long())));
    put_through!(classic, Some(Box::new(crate::verbs::classic())));
    put_through!(on_veth, crate::verbs::Veth::new().map(|veth| Box::new(veth) as _));
}

/// Two receivers, on one thread, of one flow's two legs.
macro_rules! put_through_together {
    ($backends:ident, $setup:expr) => {
        put_through!($backends, $setup, two_legs_make_up_for_each_other, one_of_two_legs_is_enough);
    };
}

mod together {
    put_through_together!(sockets, crate::pair::sockets());
    put_through_together!(xdp_and_socket, crate::pair::xdp_and_socket());
    #[cfg(feature = "rivermax-stand-in")]
    put_through_together!(rivermax_and_socket, crate::pair::rivermax_and_socket());
    #[cfg(feature = "verbs")]
    put_through_together!(verbs_and_socket, crate::pair::verbs_and_socket());
}

put_through!(xdp_in_the_driver, crate::xdp::Veth::new(gdmedia::rx::xdp::Mode::Native).map(|veth| Box::new(veth) as _));
put_through!(
    xdp_behind_the_driver,
    crate::xdp::Veth::new(gdmedia::rx::xdp::Mode::Generic).map(|veth| Box::new(veth) as _)
);

#[cfg(feature = "dpdk")]
mod by_dpdk {
    put_through!(with_the_kernel, crate::dpdk::Veth::new("net_af_packet").map(|veth| Box::new(veth) as _));
    put_through!(without_the_kernel, crate::dpdk::Veth::new("net_af_xdp").map(|veth| Box::new(veth) as _));
    put_through!(recorded, Some(Box::new(crate::dpdk::Recorded::new())));
}
