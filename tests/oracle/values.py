"""One form for values from either side, and the order of such values."""

import base64
import datetime as dt
import json
import math
import struct
from decimal import Decimal

from case import EPOCH
from expressions import FLOAT, Type
from records import timestamp_text


class Wrong(Exception):
    """The program's output cannot be read as an answer at all."""


def canonical(value, type_: Type):
    """A value such that equal values compare equal, sort, and print plainly."""
    if value is None:
        return None
    match type_.kind:
        case "int":
            return int(value)
        case "double" | "float":
            if type_ == FLOAT:
                value = struct.unpack("f", struct.pack("f", value))[0]
            return "NaN" if math.isnan(value) else repr(value + 0.0)
        case "decimal":
            return f"{Decimal(value):.{type_.scale}f}"
        case "timestamp":
            us = (value - EPOCH) // dt.timedelta(microseconds=1)
            return timestamp_text(us, type_.scale)
        case "date":
            return value.isoformat()
        case "bytes":
            return base64.b64encode(bytes(value)).decode()
        case "array":
            return tuple(canonical(each, type_.of) for each in value)
        case _:
            return value


def parsed(text: str | None, type_: Type):
    """A field of the program's CSV output in the same form."""
    if text is None:
        return None
    try:
        match type_.kind:
            case "int":
                return int(text)
            case "double" | "float":
                return canonical(float(text), type_)
            case "bool":
                return {"true": True, "false": False}[text]
            case "array" | "counts":
                return tuple(element(each, type_) for each in json.loads(text, parse_int=str, parse_float=str))
            case _:
                return text
    except (ValueError, KeyError, TypeError):
        raise Wrong(f"{text!r} is no {type_.kind}") from None


def element(value, type_: Type):
    """An element of an array, of which JSON gives numbers as texts."""
    if type_.kind == "counts":
        return element(value["value"], Type("array", of=type_.of)), int(value["count"])
    return parsed({True: "true", False: "false"}.get(value, value) if isinstance(value, bool) else value, type_.of)


def comparable(value, type_: Type):
    """What a value in the form of `canonical` is compared by, unless it is NULL: NaN is greater than all numbers."""
    match type_.kind:
        case "double" | "float":
            number = float(value)
            return (1, 0.0) if math.isnan(number) else (0, number)
        case "decimal":
            return Decimal(value)
        case "bytes":
            return base64.b64decode(value)
        case "array":
            # NULL is the least element.
            return tuple((each is not None, each if each is None else comparable(each, type_.of)) for each in value)
        case _:
            return value
