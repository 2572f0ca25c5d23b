"""Writes many slips into one file, each behind a switch: `slip::on(N)` says at run time whether slip N is made."""

import bisect

import tree_sitter
import tree_sitter_rust

PARSER = tree_sitter.Parser(tree_sitter.Language(tree_sitter_rust.language()))
CONSTANT = {"const_item", "static_item", "const_block", "array_type", "const_parameter", "enum_variant", "attribute_item"}


def offsets(text, slip):
    """The bytes that the slip replaces. Lines and columns count from 1, columns in characters."""
    lines = text.split("\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line.encode()) + 1)
    at = lambda place: starts[place["line"] - 1] + len(lines[place["line"] - 1][: place["column"] - 1].encode())
    return at(slip["span"]["start"]), at(slip["span"]["end"])


def parents(node):
    while node is not None:
        yield node
        node = node.parent


def is_constant(node):
    """Whether it is evaluated when it is compiled, where no switch can be asked."""
    for up in parents(node):
        if up.type in CONSTANT:
            return True
        if up.type in ("function_item", "closure_expression"):
            return any(c.type == "function_modifiers" and b"const" in c.text for c in up.children)
    return False


def place_of(root, slip, start, end):
    """What kind of edit, and the node that it belongs to; None where there is no switch for it."""
    genre = slip["genre"]
    token = root.descendant_for_byte_range(start, end)
    if token is None or is_constant(token):
        return None
    if genre in ("BinaryOperator", "UnaryOperator"):
        node = token
        while node is not None and node.type not in ("binary_expression", "compound_assignment_expr", "unary_expression"):
            node = node.parent if node.start_byte >= start - 1 or node is token else None
        if node is None:
            node = token.parent
        if node.type not in ("binary_expression", "compound_assignment_expr", "unary_expression"):
            return None
        if any(c.type in ("let_condition", "let_chain") for c in node.children):
            return None
        return "choice", node
    if genre == "MatchArmGuard":
        node = token
        while node.parent is not None and node.parent.start_byte == start and node.parent.end_byte == end:
            node = node.parent
        if node.start_byte != start or node.end_byte != end or node.type in ("let_condition", "let_chain"):
            return None
        return "choice", node
    if genre == "MatchArm":
        for up in parents(root.descendant_for_byte_range(start, start + 1)):
            if up.type == "match_arm" and up.start_byte == start:
                return "arm", up
        return None
    if genre == "StructField":
        for up in parents(root.descendant_for_byte_range(start, start + 1)):
            if up.type in ("field_initializer", "shorthand_field_initializer"):
                return "field", up
        return None
    if genre == "FnValue":
        for up in parents(token):
            if up.type == "function_item":
                returned = up.child_by_field_name("return_type")
                # One opaque type has one concrete type.
                if returned is not None and b"impl " in returned.text:
                    return None
                return "body", up.child_by_field_name("body")
    return None


def switched(text, slips):
    """The text with the slips (numbered) behind switches, the numbers that have one, and where each stands."""
    source = text.encode()
    root = PARSER.parse(source).root_node
    edits, numbers = {}, set()
    for number, slip in slips:
        start, end = offsets(text, slip)
        found = place_of(root, slip, start, end)
        if found is None:
            continue
        kind, node = found
        edits.setdefault((node.start_byte, node.end_byte, node.type), []).append((kind, number, slip, start, end))
        numbers.add(number)

    def mark(number, piece):
        return b"\x01%d\x02%s\x03" % (number, piece)

    def plain(node):
        out, cursor = [], node.start_byte
        for child in node.children:
            out += [source[cursor : child.start_byte], emit(child)]
            cursor = child.end_byte
        return b"".join(out) + source[cursor : node.end_byte]

    # Trees are deep in long chains of operators, but no deeper than Python's limit.
    def emit(node):
        here = edits.pop((node.start_byte, node.end_byte, node.type), [])
        if not here and not inside(node):
            return source[node.start_byte : node.end_byte]
        kinds = {kind for kind, *_ in here}
        if "arm" in kinds:
            return arm(node, here)
        if "field" in kinds:
            return field(node, here)
        text = plain(node)
        if "body" in kinds:
            inner = text[text.index(b"{") + 1 :]
            heads = [
                mark(number, b"if slip::on(%d) { return %s; } " % (number, slip["replacement"].encode()))
                for _, number, slip, _, _ in here
            ]
            return b"{ " + b"".join(heads) + inner
        for _, number, slip, start, end in here:
            slipped = source[node.start_byte : start] + slip["replacement"].encode() + source[end : node.end_byte]
            text = mark(number, b"(if slip::on(%d) { %s } else { %s })" % (number, slipped, text))
        return text

    def arm(node, here):
        _, number, *_ = here[0]
        pattern, value = node.child_by_field_name("pattern"), node.child_by_field_name("value")
        guard = pattern.child_by_field_name("condition")
        if guard is None:
            head = source[node.start_byte : pattern.end_byte] + b" if !slip::on(%d)" % number
        elif guard.type in ("let_condition", "let_chain"):
            head = source[node.start_byte : guard.start_byte] + b"!slip::on(%d) && " % number + plain(guard)
        else:
            head = source[node.start_byte : guard.start_byte] + b"!slip::on(%d) && (" % number + emit(guard) + b")"
        tail = source[pattern.end_byte : value.start_byte] + emit(value) + source[value.end_byte : node.end_byte]
        return mark(number, head) + tail

    def field(node, here):
        _, number, *_ = here[0]
        base = next((c for c in node.parent.children if c.type == "base_field_initializer"), None)
        if base is None:
            return plain(node)
        base = source[base.start_byte : base.end_byte].lstrip(b".")
        if node.type == "shorthand_field_initializer":
            name = value = source[node.start_byte : node.end_byte]
        else:
            name = node.child_by_field_name("field").text
            value = emit(node.child_by_field_name("value"))
        return mark(number, b"%s: (if slip::on(%d) { (%s).%s } else { %s })" % (name, number, base, name, value))

    starts = sorted(key[0] for key in edits)

    def inside(node):
        at = bisect.bisect_left(starts, node.start_byte)
        return at < len(starts) and starts[at] < node.end_byte

    marked = emit(root)
    # What follows or precedes the root's own span.
    marked = source[: root.start_byte] + marked + source[root.end_byte :]
    out, regions, stack, cursor = bytearray(), [], [], 0
    while cursor < len(marked):
        byte = marked[cursor]
        if byte == 1:
            stop = marked.index(2, cursor)
            stack.append((int(marked[cursor + 1 : stop]), len(out)))
            cursor = stop + 1
        elif byte == 3:
            number, start = stack.pop()
            regions.append((number, start, len(out)))
            cursor += 1
        else:
            out.append(byte)
            cursor += 1
    return bytes(out), numbers, regions
