"""What a report says that a rank held and sent."""

HELD = ("parameters", "gradients", "optimizer", "communication")


def bytes_sent(rank):
    """The bytes sent with all operations; a report's `traffic` has an entry for each rank."""
    return sum(operation["bytes_sent"] for operation in rank.values())


def differences_from_theory(report):
    """A text for each amount of a rank that is not what theory says. The trainer has compared them."""
    return [
        f"rank {rank}: {line}" for rank, lines in enumerate(report["differences"]) for line in lines
    ]
