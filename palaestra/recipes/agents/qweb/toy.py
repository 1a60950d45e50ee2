"""Two forms of a travel agency, of six and of twelve fields, what instructions call them, and the values
that are drawn: what qweb runs on where the user brings no page.
"""

from collections.abc import Sequence

import palaestra as pl
from palaestra.recipes.agents.qweb.page import FormPage, read_page

CITIES = ("Aachen", "Bergen", "Cadiz", "Dresden", "Evora", "Faro", "Genoa", "Hobart", "Izmir",
          "Jaipur", "Kyoto", "Lagos", "Madrid", "Nice", "Oslo", "Porto", "Quito", "Riga",
          "Sofia", "Turin", "Utrecht", "Varna", "Wuhan", "York", "Zagreb")  # fmt: skip
PEOPLE = ("Ada", "Bela", "Carl", "Dora", "Emil", "Fred", "Gina", "Hans", "Ivan", "Joan",
          "Kurt", "Lena", "Mary", "Nora", "Otto", "Paul", "Rita", "Sara", "Theo", "Ute")  # fmt: skip
DATES = [f"{month}/{day}/2027" for month in range(1, 13) for day in (3, 9, 17, 26)]
PHONES = [f"555-{n:04}" for n in range(1207, 9999, 397)]
FIRST = """<form><h1>Book a flight</h1>
<p><label for="from">From</label><input id="from" name="origin"></p>
<p><label for="to">To</label><input id="to" name="destination"></p>
<p><label>Date <input name="date" placeholder="mm/dd/yyyy"></label></p>
<fieldset><legend>Cabin</legend>
<label><input type="radio" name="cabin" value="e">Economy</label>
<label><input type="radio" name="cabin" value="b">Business</label>
<label><input type="radio" name="cabin" value="f">First</label></fieldset>
<p>Meal <select name="meal"><option value="">none<option>vegan<option>fish<option>chicken</select></p>
<p><label><input type="checkbox" name="insurance"> Travel insurance</label></p>
"""
SECOND = """<h2>Passenger</h2>
<p><label for="who">Full name</label><input id="who" name="passenger"></p>
<p><label for="phone">Telephone</label><input id="phone" name="phone" type="tel"></p>
<p>Seat <select name="seat"><option>any<option>window<option>aisle<option>exit</select></p>
<fieldset><legend>Bags</legend><label><input type="radio" name="bags" value="0">no bag</label>
<label><input type="radio" name="bags" value="1">one bag</label>
<label><input type="radio" name="bags" value="2">two bags</label></fieldset>
<p><label><input type="checkbox" name="newsletter"> Newsletter</label></p>
<p><label for="coming">Return date</label><input id="coming" name="return" placeholder="mm/dd/yyyy"></p>
"""
LAST = '<p><button type="reset">Clear</button> <a href="/help">Help</a> <button>Book now</button></p></form>'

WORDINGS: dict[
    str, tuple[list[str], Sequence[str] | None]
] = {  # control: what it is called, values
    "origin": (["from", "origin", "leaving from"], CITIES),
    "destination": (["to", "destination", "going to"], CITIES),
    "date": (["date", "date of departure"], DATES),
    "cabin": (["cabin", "class of the cabin"], None),
    "meal": (["meal", "meal on board"], None),
    "insurance": (["insurance", "travel insurance"], None),
    "passenger": (["passenger", "full name"], PEOPLE),
    "phone": (["phone", "telephone"], PHONES),
    "seat": (["seat", "kind of seat"], None),
    "bags": (["bags", "number of bags"], None),
    "newsletter": (["newsletter", "the newsletter"], None),
    "return": (["return", "return date"], DATES),
}


def travel_page(size: int) -> FormPage:
    """The form of 6 or 12 fields. Raises UserError for another size."""
    if size not in (6, 12):
        raise pl.UserError(f"size is 6 or 12, the fields of the built-in form, not {size}")
    return read_page("travel.html", FIRST + (SECOND if size == 12 else "") + LAST)


def travel_fields(page: FormPage) -> list[dict[str, object]]:
    """The field list of the form, as a user's file has it."""
    rows = list[dict[str, object]]()
    for control in page.controls:
        names, values = WORDINGS[control.name]
        row: dict[str, object] = {"control": control.name, "field": names}
        rows.append(row | ({"values": values} if values else {}))
    return rows
