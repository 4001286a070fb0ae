"""Customers: what each of them bought so far, the law of each one's next basket, and recommendations from it."""

from ndpp.customers.customers import Customers
from ndpp.customers.people import Customer, Habits

__all__ = ["Customer", "Customers", "Habits"]
